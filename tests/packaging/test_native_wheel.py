# SPDX-License-Identifier: Apache-2.0
"""``EAGLE3_QUAROT_NATIVE``: a wheel with compiled kernels, or an error that says why not."""

from __future__ import annotations

import platform
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from tests.packaging.conftest import BuildError, build
from tests.packaging.environments import Environment, our_requirements, with_requirements

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.mark.packaging
@needs_compiler
def test_wheel_with_cpu_kernels(tmp_path: Path) -> None:
    """It needs neither compiler nor cache folder; another torch makes it compile at first use."""
    build(tmp_path, "--wheel", EAGLE3_QUAROT_NATIVE="cpu")
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith(f"-py3-none-linux_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as content:
        brought = [name for name in content.namelist() if "/_lib/" in name]
    assert sorted(Path(name).suffix for name in brought) == [".sha256", ".so"]
    assert all(f"torch{torch.__version__}" in name for name in brought)

    packages = with_requirements("torch", *our_requirements())
    environment = Environment(tmp_path / "environment", packages)
    environment.pip("install", wheel)
    cache = tmp_path / "cache"
    loaded = environment.run(
        "python",
        "-c",
        "from vllm_eagle3_quarot import ops; print(ops.load_native())",
        XDG_CACHE_HOME=str(cache),
        PATH="",
    )
    assert loaded.stdout.startswith("native kernels, "), loaded.stdout + loaded.stderr
    assert str(environment.site) in loaded.stdout
    assert not cache.exists()
    other_torch = environment.run(
        "python",
        "-c",
        "import torch; torch.__version__ = torch.__version__ + '.other'\n"
        "from vllm_eagle3_quarot import ops; print(ops.load_native())",
        XDG_CACHE_HOME=str(cache),
        PATH="",
    )
    assert other_torch.stdout.strip() == "plain torch (no C++ compiler in PATH)"
    environment.pip("uninstall", "--yes", "vllm-eagle3-quarot")
    assert not (environment.site / "vllm_eagle3_quarot").exists()


@pytest.mark.parametrize(
    ("asked", "environment", "message"),
    [
        ("gpu", {}, "EAGLE3_QUAROT_NATIVE='gpu' names gpu; known are cpu, ascend"),
        pytest.param(
            "cpu",
            {"CXX": "no-such-compiler"},
            "CXX is 'no-such-compiler', which is no program",
            marks=pytest.mark.packaging,
        ),
        ("ascend", {"ASCEND_HOME_PATH": "/nowhere"}, "no CANN toolkit at '/nowhere'"),
        ("ascend", {"PATH": "/nowhere"}, "needs cmake, which is not in PATH"),
    ],
    ids=["unknown", "no compiler", "no toolkit", "no cmake"],
)
def test_what_cannot_be_built_is_an_error(
    tmp_path: Path, asked: str, environment: dict[str, str], message: str
) -> None:
    if asked == "ascend" and "PATH" not in environment and shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    with pytest.raises(BuildError) as caught:
        build(tmp_path, "--wheel", EAGLE3_QUAROT_NATIVE=asked, **environment)
    assert message in str(caught.value)
    assert not list(tmp_path.glob("*.whl"))
