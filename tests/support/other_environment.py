# SPDX-License-Identifier: Apache-2.0
"""The interpreter of an environment of its own, for tests that cannot share the main one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def interpreter_of(variable: str, folder: str, package: str, target: str, compiled: str) -> Path:
    """The Python named by ``variable``, else that of ``folder`` in the repository's root.

    Skips the test when nobody made the environment with ``package`` (``make target`` does), or
    there is no compiler for ``compiled``. A name that leads nowhere fails it.
    """
    named = os.environ.get(variable)
    path = Path(named) if named else ROOT / folder / "bin" / "python"
    if not path.exists():
        if named:
            pytest.fail(f"{variable} is {named}, which does not exist", pytrace=False)
        pytest.skip(f"no environment with {package}: run `make {target}`, or set {variable}")
    if shutil.which("g++") is None:
        pytest.skip(f"g++ is not installed; {compiled} is compiled from source")
    return path
