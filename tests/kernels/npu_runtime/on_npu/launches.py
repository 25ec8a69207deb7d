# SPDX-License-Identifier: Apache-2.0
"""What reached the kernel: counters of ``driver/launch_rows.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def npu() -> Any:
    """torch_npu's device module, ``torch.npu``; the runtime has to be active."""
    import torch_npu

    return torch_npu.npu


@dataclass(frozen=True)
class Made(Generic[T]):
    """The result of a call and the launches it made.

    Attributes:
        stream: address of the stream of the last launch.
        cores: its number of cores.
        by_caller: it was made by the calling thread.
    """

    result: T
    count: int
    stream: int
    cores: int
    by_caller: bool


class Launches:
    """Reads the counters of the loaded library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.this_thread.restype = ctypes.c_uint64

    def _value(self, name: str) -> int:
        return ctypes.c_uint64.in_dll(self._library, f"launch_{name}").value

    @property
    def count(self) -> int:
        """Launches since the library was loaded."""
        return self._value("count")

    def during(self, call: Callable[[], T]) -> Made[T]:
        """Run ``call`` and wait for what it launched."""
        before = self.count
        result = call()
        npu().synchronize()
        return Made(
            result,
            count=self.count - before,
            stream=self._value("stream"),
            cores=self._value("cores"),
            by_caller=self._value("thread") == self._library.this_thread(),
        )
