# SPDX-License-Identifier: Apache-2.0
"""What would make the demo fail minutes later, found before anything is started."""

from __future__ import annotations

import math
import os
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

import psutil

from tools.serving import ServingError

GIB = 1024**3
NEEDED_GIB = 5.0
"""One server: three Python processes with torch and vLLM, the KV cache (1 GiB) and the weights
took 3.6 GiB (resident set, x86_64); the rest is head room."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where a container (cgroup v2) sees its limit in bytes, or "max"."""

PLUGIN = "eagle3_quarot"


def check_installation() -> None:
    """Raise ServingError unless vLLM is installed and will load the plugin."""
    try:
        version("vllm")
    except PackageNotFoundError:
        raise ServingError("vLLM is not installed in this environment: run `make venv`") from None
    if not entry_points(group="vllm.general_plugins", name=PLUGIN):
        raise ServingError("the plugin is not installed in this environment: run `make venv`")
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN not in [name.strip() for name in allowed.split(",")]:
        raise ServingError(f"VLLM_PLUGINS={allowed} keeps vLLM from loading {PLUGIN}: unset it")
    if os.environ.get("VLLM_EAGLE3_QUAROT_DISABLE", "0") not in ("", "0"):
        raise ServingError("VLLM_EAGLE3_QUAROT_DISABLE switches the plugin off: unset it")


def check_memory() -> None:
    """Raise ServingError if less memory is available than one server takes."""
    available = min(psutil.virtual_memory().available, _container_limit()) / GIB
    if available < NEEDED_GIB:
        raise ServingError(
            f"{available:.1f} GiB of memory are available and one server needs {NEEDED_GIB:.0f}: "
            "close other programs, or use a larger machine"
        )


def _container_limit() -> float:
    try:
        text = CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return math.inf
    return math.inf if text == "max" else int(text)
