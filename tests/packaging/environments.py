# SPDX-License-Identifier: Apache-2.0
"""Virtual environments that hold chosen packages of this one, made in a second and offline.

The packages are links, so pip sees them installed, resolves against them and can remove what a test
installs beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OURS = "vllm-eagle3-quarot"


class Environment:
    """One virtual environment.

    Args:
        folder: where it goes.
        packages: names of this environment's distributions to link into it.
        beside: ``site-packages`` folders of other environments to link as a whole.
    """

    def __init__(self, folder: Path, packages: Iterable[str], beside: Iterable[Path] = ()) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        for package in packages:
            self._link(metadata.distribution(package))
        for other in beside:
            for path in other.iterdir():
                if path.suffix != ".pth":
                    (self.site / path.name).symlink_to(path)

    def pip(self, *arguments: str | Path) -> str:
        """Run pip for this environment, without an index; return what it said.

        Raises:
            AssertionError: it failed.
        """
        command = [sys.executable, "-m", "pip", "--python", str(self.python)]
        options = ["--disable-pip-version-check", "--no-input"]
        done = subprocess.run(
            [*command, *map(str, arguments), *options],
            env={**_clean_environment(), "PIP_NO_INDEX": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment in ``cwd``, by default the environment's folder."""
        environment.setdefault("PATH", f"{self.folder / 'bin'}{os.pathsep}{programs()}")
        program, *rest = map(str, arguments)
        return subprocess.run(
            [str(self.folder / "bin" / program), *rest],
            cwd=cwd or self.folder,
            env={**_clean_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def files(self) -> set[Path]:
        """Everything in it, links not followed, without what Python compiles by itself."""
        return {
            path.relative_to(self.folder)
            for path in _walk(self.folder)
            if "__pycache__" not in path.parts
        }

    def _link(self, distribution: metadata.Distribution) -> None:
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = self.site / name
            if not link.is_symlink():
                link.symlink_to(Path(str(distribution.locate_file(name))).resolve())


def programs() -> str:
    """``PATH`` with the programs of the environment that runs the tests in front."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def with_requirements(*packages: str) -> set[str]:
    """``packages`` and what they require, as far as it is installed here."""
    found: set[str] = set()
    waiting = [*packages]
    while waiting:
        name = canonicalize_name(waiting.pop())
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            waiting += _needed(requires)
    return found


def our_requirements() -> list[str]:
    """What the project requires, without its extras; an editable installation may say less."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(_needed(project["dependencies"]))


def everything_but_ours() -> set[str]:
    """All distributions of this environment except this project's."""
    return {str(canonicalize_name(each.name)) for each in metadata.distributions()} - {OURS}


def _needed(requires: Iterable[str]) -> Iterator[str]:
    for line in requires:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _clean_environment() -> dict[str, str]:
    """This process's, without what would lead a program back to this environment."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "LD_PRELOAD", "EAGLE3_QUAROT_NATIVE", "CXX")
    return {name: value for name, value in os.environ.items() if name not in hidden}
