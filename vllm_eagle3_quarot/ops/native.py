# SPDX-License-Identifier: Apache-2.0
"""Native CPU kernels for the operators: optional, built on first use, never in the way.

:func:`load_native` is called where a rotation is about to be used on the CPU, not on import.
Without a compiler, a writable cache folder or the sources, the operators go on in plain torch with
the same values; one log line says which of the two runs.

``VLLM_EAGLE3_QUAROT_CPU_KERNEL`` chooses: ``auto`` (default), ``off`` (plain torch), or one
instruction set, ``avx512``, ``avx2`` or ``generic``, for comparison. A set that the processor lacks
gives ``generic``.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.ops.native_build import NativeBuildError, build, is_intact, library_path

logger = logging.getLogger("vllm.eagle3_quarot")

KERNEL_VARIABLE = "VLLM_EAGLE3_QUAROT_CPU_KERNEL"
KERNEL_CHOICES = ("auto", "off", "avx512", "avx2", "generic")

_lock = threading.Lock()
_loaded: Backend | None = None


@dataclass(frozen=True)
class Backend:
    """What runs the operators on the CPU.

    Attributes:
        kernel: the native kernels' instruction set; None when plain torch runs.
        detail: the library's file, or why there is none.
    """

    kernel: str | None
    detail: str

    def __str__(self) -> str:
        if self.kernel is None:
            return f"plain torch ({self.detail})"
        return f"native kernels, {self.kernel} ({self.detail})"


def load_native() -> Backend:
    """Load the native CPU kernels, building them when needed, and say what runs from now on.

    The first call in a process decides; it takes some 20 seconds of one core when the library has
    to be built and no time when it is cached. Several processes may call it at once: one builds,
    the others wait. Never raises.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load()
            logger.info("eagle3_quarot: operators on the CPU run as %s", _loaded)
        return _loaded


def _load() -> Backend:
    choice = os.environ.get(KERNEL_VARIABLE, "auto")
    if choice == "off":
        return Backend(None, f"{KERNEL_VARIABLE} is 'off'")
    if choice not in KERNEL_CHOICES:
        known = ", ".join(KERNEL_CHOICES)
        return Backend(None, f"{KERNEL_VARIABLE} is {choice!r}, known are {known}")
    try:
        path = library_path()
        if not is_intact(path):
            build(path)
        return _open(path)
    except NativeBuildError as error:
        return Backend(None, str(error))
    except (OSError, RuntimeError, AttributeError) as error:
        # OSError: cache folder or dlopen; RuntimeError: torch refuses the library's registrations;
        # AttributeError: another library under our name. Plain torch serves in every case.
        return Backend(None, f"the native library cannot be used: {error}")


def _open(path: Path) -> Backend:
    torch.ops.load_library(str(path))
    name = ctypes.CDLL(str(path)).eagle3_quarot_cpu_kernel
    name.restype = ctypes.c_char_p
    return Backend(name().decode(), str(path))
