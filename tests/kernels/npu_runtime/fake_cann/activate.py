# SPDX-License-Identifier: Apache-2.0
"""Puts the fake CANN in the place of a real one, for this process.

:func:`activate` comes before ``import torch_npu``. The environment must have
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` from the start of the process, or ``import torch`` itself stops
at the missing CANN.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from tests.kernels.npu_runtime.fake_cann.libraries import MAIN_LIBRARY

#: The variable ``keys`` in c10::CachingAllocator::AcceleratorAllocatorConfig::getMutableKeys().
ALLOCATOR_KEYS = (
    "_ZZN3c1016CachingAllocator26AcceleratorAllocatorConfig14getMutableKeysB5cxx11EvE4keys"
)


class FakeCann:
    """The loaded runtime and its counters."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _count(self, name: str) -> int:
        return ctypes.c_uint64.in_dll(self._library, f"fake_cann_{name}").value

    @property
    def synchronisations(self) -> int:
        """How often the host waited for the device."""
        return self._count("synchronisations")

    @property
    def copies(self) -> int:
        """Copies by the runtime, in any direction."""
        return self._count("copies")

    @property
    def refused_operators(self) -> int:
        """Launches of built-in operators, each of which failed."""
        return self._count("refused_operators")


def activate(folder: Path) -> FakeCann:
    """Load the libraries that ``libraries.build`` left in ``folder``."""
    if "torch_npu" in sys.modules:
        raise RuntimeError("torch_npu is already imported; activate the fake CANN first")
    # Only its presence is checked. ASCEND_HOME_PATH stays unset: with it torch_npu looks for files.
    os.environ.setdefault("ASCEND_OPP_PATH", str(folder))
    # The dynamic linker takes a loaded library for a soname, wherever it came from.
    library = ctypes.CDLL(str(folder / MAIN_LIBRARY), ctypes.RTLD_GLOBAL)
    for path in sorted(folder.glob("*.so")):
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    _forget_cuda_allocator_options(library)
    return FakeCann(library)


def _forget_cuda_allocator_options(library: ctypes.CDLL) -> None:
    import torch

    if torch.version.cuda is None:
        return
    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    core = path.read_bytes()
    try:
        keys = ctypes.c_char.in_dll(ctypes.CDLL(str(path)), ALLOCATOR_KEYS)
    except ValueError:
        return  # this torch keeps no list of options
    library.fake_cann_forget_allocator_keys(
        ctypes.byref(keys), ctypes.c_char_p(core), ctypes.c_size_t(len(core))
    )
