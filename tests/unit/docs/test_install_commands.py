# SPDX-License-Identifier: Apache-2.0
"""Commands of the installation page that are not run here name what exists.

What they do is run in tests/packaging: the Dockerfile's commands, installing, removing.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import tomllib

import hatch_build
from tests.support.documented import ROOT, Command, commands
from vllm_eagle3_quarot.ops import native_build

COMMANDS = commands()
DOCKERFILE = ROOT / "docker" / "Dockerfile"


def _named(program: str) -> list[Command]:
    found = [command for command in COMMANDS if command.program == program]
    assert found
    return found


def test_docker_is_given_the_file_and_its_arguments() -> None:
    declared = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE))
    for command in _named("docker"):
        words = command.words
        assert words[1] == "build" and words[-1] == "."
        assert ROOT / words[words.index("-f") + 1] == DOCKERFILE
        for option, value in pairwise(words):
            if option == "--build-arg":
                name, _, given = value.partition("=")
                assert name == "TAG" and given == f"{declared[name]}-a3"


def test_the_environment_of_cann_is_the_images() -> None:
    for command in _named("source"):
        assert f"RUN source {command.words[1]} && " in DOCKERFILE.read_text()


def test_what_is_left_is_the_kernels_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in _named("rm"):
        assert command.words[1] == "-r"
        folder = Path(command.words[2]).expanduser()
        assert native_build.library_path().parent == folder


def test_back_ends_and_build_requirements_are_known() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for command in COMMANDS:
        for assignment in command.assignments:
            name, _, value = assignment.partition("=")
            if name == hatch_build.VARIABLE:
                assert set(hatch_build.requested(value)) <= set(hatch_build.BACK_ENDS)
                assert {"--no-isolation", "--no-build-isolation"} & set(command.words)
    hatchling = next(each for each in COMMANDS if "hatchling" in each.line)
    assert [hatchling.words[-1]] == required
