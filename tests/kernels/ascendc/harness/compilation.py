# SPDX-License-Identifier: Apache-2.0
"""Compiles and links with g++, once per content: results stay in a cache folder.

An object is known by the content of everything of this project that it may include, so a second run
compiles nothing and a mutant recompiles only the kernels.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


def cache_folder() -> Path:
    """Folder for objects: EAGLE3_QUAROT_BUILD_CACHE, or one under the system's temporary folder."""
    configured = os.environ.get("EAGLE3_QUAROT_BUILD_CACHE")
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    folder = (
        Path(configured)
        if configured
        else Path(tempfile.gettempdir()) / f"eagle3-quarot-ascendc-{user}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class CompileError(Exception):
    """The compiler refused; the message holds its command and what it said."""


@dataclass(frozen=True)
class Unit:
    """One source file to compile.

    Attributes:
        source: the file.
        own_headers: folders whose headers it may include and which this project can change, besides
            its own folder.
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
        """Return the object file.

        Raises:
            CompileError: the compiler refuses the source.
        """
        folders = (*self.own_headers, self.source.parent)
        headers = [path for folder in folders for path in sorted(folder.glob("*.h"))]
        target = _cached(self.source.stem, ".o", (self.source, *headers), self.flags, self.versions)
        include = [f"-I{folder}" for folder in self.own_headers]
        foreign = [f"-isystem{folder}" for folder in self.foreign_headers]
        _make(target, [*self.flags, *include, *foreign, "-c", str(self.source)])
        return target


def link(
    name: str,
    objects: Sequence[Path],
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
    *,
    shared: bool = True,
) -> Path:
    """Return the shared library, or the executable. ``libraries`` are ``-l`` options.

    Raises:
        CompileError: the linker refuses them.
    """
    flags = ["-shared", *flags] if shared else list(flags)
    target = _cached(name, ".so" if shared else "", objects, (*flags, *libraries), ())
    _make(target, [*flags, *map(str, objects), *libraries])
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
    # Another process or thread may be making the same file: each writes its own and renames it.
    scratch = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}")
    command = ["g++", *arguments, "-o", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
    scratch.replace(target)
