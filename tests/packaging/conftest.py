# SPDX-License-Identifier: Apache-2.0
"""The archives that the tests look into and install, built once by ``python -m build``."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.environments import Environment, our_requirements, programs, with_requirements

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Archives:
    """What ``python -m build`` makes: the wheel is built from the sdist."""

    sdist: Path
    wheel: Path


def build(folder: Path, *options: str, **environment: str) -> str:
    """Run ``python -m build`` on this project into ``folder``, offline; return what it said."""
    hidden = "EAGLE3_QUAROT_NATIVE"
    kept = {name: value for name, value in os.environ.items() if name != hidden}
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *options, ROOT],
        env={**kept, "PATH": programs(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError(done.stdout)
    return done.stdout


class BuildError(Exception):
    """``python -m build`` failed; the message is what it said."""


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """The default build, nothing asked for."""
    folder = tmp_path_factory.mktemp("archives")
    build(folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Archives(sdist, wheel)


@pytest.fixture(scope="session")
def plain_environment(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel where torch is and no host."""
    packages = with_requirements("torch", *our_requirements())
    environment = Environment(tmp_path_factory.mktemp("plain"), packages)
    environment.pip("install", archives.wheel)
    return environment
