# SPDX-License-Identifier: Apache-2.0
"""The Python files of a released host, downloaded once and never installed or imported.

They are kept in ``$EAGLE3_QUAROT_RELEASES``, by default ``~/.cache/vllm-eagle3-quarot/releases``;
of some 100 MB of a wheel, that is some 15.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.contract.wheels.releases import Release

CACHE_VARIABLE = "EAGLE3_QUAROT_RELEASES"

DOWNLOAD_TIMEOUT_S = 300


def source_folder(release: Release) -> Path:
    """The folder that contains the package of ``release``.

    The release that is installed here is not downloaded. Skips the test when the package index
    cannot be reached, and fails when it no longer has the release.
    """
    installed = _installed(release)
    if installed is not None:
        return installed
    cache = Path(
        os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache/vllm-eagle3-quarot/releases"
    )
    folder = cache / str(release)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                files = Path(scratch) / "files"
                _download(release, Path(scratch), files)
                files.rename(folder)
    return folder


def _installed(release: Release) -> Path | None:
    try:
        if importlib.metadata.version(release.distribution) != release.version:
            return None
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec(release.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).parent


def _download(release: Release, scratch: Path, files: Path) -> None:
    """Put the package's ``*.py`` under ``files``.

    pip has no way to fetch a source distribution without asking its build for metadata, which fails
    without the NPU's tools. What pip has unpacked by then is kept (``--no-clean``).
    """
    kind = ["--only-binary", ":all:"] if release.wheel else ["--no-binary", release.distribution]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"),
            *("--no-clean", "--dest", str(scratch), *kind),
            f"{release.distribution}=={release.version}",
        ],
        env={**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        check=False,
    )
    for wheel in scratch.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            prefix = f"{release.package}/"
            archive.extractall(
                files,
                [n for n in archive.namelist() if n.startswith(prefix) and n.endswith(".py")],
            )
        return
    for package in scratch.glob(f"*/*/{release.package}"):
        for path in package.rglob("*.py"):
            target = files / release.package / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        return
    if "No matching distribution" in result.stderr and "from versions: none" not in result.stderr:
        pytest.fail(f"the package index has no {release}: {result.stderr[-500:]}")
    pytest.skip(f"{release} cannot be downloaded here: {result.stderr[-300:]}")
