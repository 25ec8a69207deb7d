# SPDX-License-Identifier: Apache-2.0
"""The pure wheel in environments that never saw this checkout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.packaging.conftest import Archives
from tests.packaging.environments import Environment, our_requirements, with_requirements
from tests.support import reference_pair as pair

ROTATED = pair.PAIR / "target-w8a8-quarot"


@pytest.mark.packaging
def test_the_command_line_works_where_no_host_is(plain_environment: Environment) -> None:
    """torch is there, vLLM and torch_npu are not: doctor looks at files."""
    found = plain_environment.run(
        "python",
        "-c",
        "import importlib.util as u, vllm_eagle3_quarot as ours; "
        "print(u.find_spec('vllm'), u.find_spec('torch_npu'), ours.__file__)",
    )
    assert found.stdout.split()[:2] == ["None", "None"], found.stderr
    assert Path(found.stdout.split()[2]).is_relative_to(plain_environment.site)
    helped = plain_environment.run("eagle3-quarot", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "doctor" in helped.stdout
    models = ("--target", ROTATED, "--draft", pair.DRAFT)
    examined = plain_environment.run("eagle3-quarot", "doctor", *models, "--json")
    assert examined.returncode == 0, examined.stderr
    document = json.loads(examined.stdout)
    assert document["verdict"] == "ready-with-plugin"
    assert "engine-not-installed" in [finding["code"] for finding in document["findings"]]


@pytest.mark.packaging
def test_the_plugin_registers_nothing_and_says_so_where_no_host_is(
    plain_environment: Environment,
) -> None:
    done = plain_environment.run(
        "python", "-c", "from vllm_eagle3_quarot.plugin import register; register()"
    )
    assert done.returncode == 0, done.stderr
    assert "could not register with this vLLM (ModuleNotFoundError" in done.stderr


def test_without_torch_the_command_says_what_is_missing(archives: Archives, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "bare", with_requirements(*our_requirements()))
    environment.pip("install", archives.wheel)
    imported = environment.run("python", "-c", "import vllm_eagle3_quarot.plugin")
    assert imported.returncode == 0, imported.stderr
    done = environment.run("eagle3-quarot", "--help")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "this environment has no torch" in done.stderr


@pytest.mark.packaging
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_first_use_compiles_what_the_wheel_brought(
    plain_environment: Environment, tmp_path: Path
) -> None:
    program = "from vllm_eagle3_quarot import ops; print(ops.load_native())"
    arguments = ("python", "-c", program)
    first = plain_environment.run(*arguments, XDG_CACHE_HOME=str(tmp_path))
    assert first.stdout.startswith("native kernels, "), first.stdout + first.stderr
    (library,) = (tmp_path / "vllm-eagle3-quarot").glob("*.so")
    assert str(library) in first.stdout
    again = plain_environment.run(*arguments, XDG_CACHE_HOME=str(tmp_path), PATH="")
    assert again.stdout == first.stdout
