# SPDX-License-Identifier: Apache-2.0
"""Reads ``docker/Dockerfile`` and carries out one of its stages in a folder, without Docker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """One instruction: ``COPY`` and what follows it, continuation lines joined."""

    name: str
    arguments: str


def instructions(text: str) -> Iterator[Instruction]:
    """All instructions in order."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, arguments = line.strip().partition(" ")
        yield Instruction(name, " ".join(arguments.split()))


def stages(text: str) -> list[list[Instruction]]:
    """The instructions of each ``FROM``; what comes before the first one is left out."""
    found: list[list[Instruction]] = []
    for each in instructions(text):
        if each.name == "FROM":
            found.append([])
        if found:
            found[-1].append(each)
    return found


class Container:
    """A folder in the place of an image's file system.

    Args:
        root: the folder.
        context: what ``COPY`` reads from.
        environment: of the commands.
        mounts: absolute paths of the image, and what stands for them here; longest first. Anything
            else that is absolute lies below ``root``.
    """

    def __init__(
        self, root: Path, context: Path, environment: Mapping[str, str], mounts: Mapping[str, Path]
    ) -> None:
        self._root = root
        self._context = context
        self._environment = dict(environment)
        self._mounts = mounts
        self._workdir = root

    def carry_out(self, stage: list[Instruction]) -> str:
        """Do what the instructions say; return what the commands printed.

        Raises:
            AssertionError: an instruction that this class does not know, or a command that fails.
        """
        said = []
        for each in stage:
            match each.name:
                case "FROM":
                    pass
                case "SHELL":
                    assert each.arguments == '["/bin/bash", "-c"]'
                case "WORKDIR":
                    self._workdir = self._path(each.arguments)
                    self._workdir.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(each.arguments)
                case "RUN":
                    said.append(self._run(each.arguments))
                case _:
                    raise AssertionError(f"{each.name} is not known here")
        return "".join(said)

    def _path(self, name: str) -> Path:
        """What a path of the image is here."""
        if not name.startswith("/"):
            return self._workdir / name
        for mount, folder in self._mounts.items():
            if name == mount or name.startswith(f"{mount}/"):
                return folder / name[len(mount) :].lstrip("/")
        return self._root / name.lstrip("/")

    def _copy(self, arguments: str) -> None:
        *sources, target = arguments.split()
        # `--from=build`: one folder stands for all stages.
        from_stage = sources[0].startswith("--from=")
        if from_stage:
            sources = sources[1:]
        for source in sources:
            found = self._path(source) if from_stage else self._context / source
            assert found.exists(), f"COPY {arguments}: there is no {source}"
            destination = self._path(target)
            if found.is_dir():
                shutil.copytree(found, destination, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                destination.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, destination)

    def _run(self, command: str) -> str:
        for mount in ("/tmp", *self._mounts):
            command = command.replace(f"{mount}/", f"{self._path(mount)}/")
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self._workdir,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout[-6000:]}"
        return done.stdout
