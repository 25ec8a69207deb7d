# SPDX-License-Identifier: Apache-2.0
"""Memory of this process that is its own: pages of mapped files are left out (Linux)."""

from __future__ import annotations

import threading
from pathlib import Path

_STATUS = Path("/proc/self/status")

#: Between two looks of :class:`PeakOfPrivateBytes`; a block that lives shorter may be missed.
INTERVAL_S = 0.002


def private_bytes() -> int:
    """Resident anonymous memory: what the process has allocated and touched."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"{_STATUS} has no RssAnon: this measurement needs Linux 4.5 or newer")


class PeakOfPrivateBytes:
    """Largest :func:`private_bytes` within a ``with`` block, seen by a thread that keeps looking.

    The kernel's own high-water mark counts mapped files as well, which is memory that any process
    may use again at once.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakOfPrivateBytes:
        self.bytes = private_bytes()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.bytes = max(self.bytes, private_bytes())

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self.bytes = max(self.bytes, private_bytes())
