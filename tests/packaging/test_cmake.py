# SPDX-License-Identifier: Apache-2.0
"""``csrc/ascend/CMakeLists.txt``: where it builds, for which chip, and where it does nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging import cann_toolkit
from tests.packaging.conftest import ROOT
from tests.packaging.environments import programs

pytestmark = [
    pytest.mark.skipif(shutil.which("cmake", path=programs()) is None, reason="needs cmake"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cann_toolkit.install(tmp_path_factory.mktemp("ascend")) / "latest"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages that CMake's Python sees: a torch and a torch_npu that say where they
    are. torch_npu cannot be imported, as in a container that is being built."""
    folder = tmp_path / "packages"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("def compiled_with_cxx11_abi(): return True\n")
    (folder / "torch_npu").mkdir()
    (folder / "torch_npu" / "__init__.py").write_text("raise ImportError('no driver')\n")
    return folder


def configure(
    build: Path, *options: str, packages: Path | None = None, soc: str = ""
) -> subprocess.CompletedProcess[str]:
    named = {"PYTHONPATH": str(packages or ""), "SOC_VERSION": soc, "PATH": programs()}
    python = f"-DPython_EXECUTABLE={sys.executable}"
    return subprocess.run(
        ["cmake", "-S", ROOT / "csrc" / "ascend", "-B", build, python, *options],
        env={**os.environ, **named},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def cached(build: Path, name: str) -> str:
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    (value,) = [line.split("=", 1)[1] for line in lines if line.startswith(f"{name}:")]
    return value


def targets(build: Path) -> str:
    return subprocess.run(
        ["cmake", "--build", build, "--target", "help"],
        env={**os.environ, "PATH": programs()},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.parametrize("soc", ["", "ascend910b1", "Ascend910_9391"])
def test_it_builds_where_a_toolkit_is(
    tmp_path: Path, toolkit: Path, packages: Path, soc: str
) -> None:
    """Names of chips as vllm-ascend's images and CANN write them; A2 without one."""
    where = f"-DASCEND_CANN_PACKAGE_PATH={toolkit}"
    done = configure(tmp_path, where, packages=packages, soc=soc)
    assert done.returncode == 0, done.stdout
    assert "eagle3_quarot_ascend\n" in targets(tmp_path)
    assert cached(tmp_path, "SOC_VERSION") == (soc or "Ascend910B1")


def test_it_does_nothing_without_a_toolkit(tmp_path: Path) -> None:
    done = configure(tmp_path, "-DASCEND_CANN_PACKAGE_PATH=/nowhere")
    assert done.returncode == 0, done.stdout
    assert "no CANN toolkit at '/nowhere' (ASCEND_HOME_PATH)" in done.stdout
    assert "eagle3_quarot" not in targets(tmp_path)


def test_it_does_nothing_without_torch_npu(tmp_path: Path, toolkit: Path, packages: Path) -> None:
    shutil.rmtree(packages / "torch_npu")
    done = configure(tmp_path, f"-DASCEND_CANN_PACKAGE_PATH={toolkit}", packages=packages)
    assert done.returncode == 0, done.stdout
    assert "does not have torch and torch_npu" in done.stdout
    assert "eagle3_quarot" not in targets(tmp_path)


def test_another_chip_is_refused(tmp_path: Path, toolkit: Path) -> None:
    done = configure(tmp_path, f"-DASCEND_CANN_PACKAGE_PATH={toolkit}", soc="ascend310p3")
    assert done.returncode != 0
    assert "SOC_VERSION ascend310p3 is neither Atlas A2" in done.stdout
