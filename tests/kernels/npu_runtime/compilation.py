# SPDX-License-Identifier: Apache-2.0
"""Compiles and links with g++, once per content: results stay in the kernel tests' build cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kernels.ascendc.harness.build import cache_folder


class CompileError(Exception):
    """The compiler refused; the message holds its command and what it said."""


@dataclass(frozen=True)
class Unit:
    """One source file to compile.

    Attributes:
        source: the file.
        own_headers: folders whose headers it may include and which this project can change.
        flags: compiler flags.
        foreign_headers: folders of installed packages, told apart by ``versions``.
        versions: of those packages.
    """

    source: Path
    own_headers: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    foreign_headers: tuple[Path, ...] = ()
    versions: tuple[str, ...] = ()

    def compile(self) -> Path:
        """Return the object file."""
        headers = sorted(path for folder in self.own_headers for path in folder.glob("*.h"))
        target = _cached(self.source.stem, ".o", (self.source, *headers), self.flags, self.versions)
        include = [f"-I{folder}" for folder in self.own_headers]
        foreign = [f"-isystem{folder}" for folder in self.foreign_headers]
        _make(target, [*self.flags, *include, *foreign, "-c", str(self.source)])
        return target


def link(
    name: str, objects: Sequence[Path], flags: Sequence[str], libraries: Sequence[str] = ()
) -> Path:
    """Return the shared library of ``objects``; ``libraries`` are ``-l`` options."""
    target = _cached(name, ".so", objects, (*flags, *libraries), ())
    _make(target, ["-shared", *flags, *map(str, objects), *libraries])
    return target


def _cached(
    stem: str, suffix: str, inputs: Iterable[Path], flags: Iterable[str], versions: Iterable[str]
) -> Path:
    digest = hashlib.sha256("\0".join((*flags, "", *versions)).encode())
    for path in inputs:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return cache_folder() / f"{stem}-{digest.hexdigest()[:20]}{suffix}"


def _make(target: Path, arguments: Sequence[str]) -> None:
    if target.exists():
        return
    # Another process may be making the same file: each writes its own and renames it.
    scratch = target.with_suffix(f".{os.getpid()}{target.suffix}")
    command = ["g++", *arguments, "-o", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    scratch.replace(target)
