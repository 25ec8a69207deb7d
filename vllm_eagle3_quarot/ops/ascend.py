# SPDX-License-Identifier: Apache-2.0
"""The AscendC kernels for the operators on an NPU: optional, built beforehand against CANN.

``EAGLE3_QUAROT_NATIVE=ascend pip install --no-build-isolation .`` compiles ``csrc/ascend`` into the
package (``hatch_build.py``) on a machine that has a CANN toolkit. By hand::

    cmake -S csrc/ascend -B build/ascend
    cmake --build build/ascend
    cmake --install build/ascend --prefix FOLDER   # :data:`FOLDER` below

Without the library the operators run in plain torch on the NPU, with the same values.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import torch

from vllm_eagle3_quarot.ops.native import Backend

logger = logging.getLogger("vllm.eagle3_quarot")

#: Where ``cmake --install`` puts the library; inside the package, so that a wheel can bring it.
FOLDER = Path(__file__).resolve().parents[1] / "_lib"
LIBRARY = "libeagle3_quarot_ascend.so"

_lock = threading.Lock()
_loaded: Backend | None = None


def load_ascend(folder: Path = FOLDER) -> Backend:
    """Load the NPU kernels if they were built, and say what runs from now on. Never raises.

    The first call in a process decides. torch_npu must be imported before, as every NPU host does.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load(folder / LIBRARY)
            logger.info("eagle3_quarot: operators on the NPU run as %s", _loaded)
        return _loaded


def _load(path: Path) -> Backend:
    if not path.exists():
        return Backend(None, f"there is no {path}; csrc/ascend was not built on this machine")
    try:
        torch.ops.load_library(str(path))
    except (OSError, RuntimeError) as error:
        # OSError: built against another CANN or torch_npu; RuntimeError: torch refuses what it
        # registers. Plain torch serves in both cases.
        return Backend(None, f"{path} cannot be loaded: {error}")
    return Backend("AscendC", str(path))
