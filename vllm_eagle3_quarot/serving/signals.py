# SPDX-License-Identifier: Apache-2.0
"""Let a termination signal unwind the program as Ctrl-C does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def _exit(signum: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signum)


@contextmanager
def unwinding_on_termination() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise SystemExit(128 + signal).

    By default they end the process on the spot, before any ``with`` block could stop its server.
    Main thread only, like all signal handlers.
    """
    before = {signum: signal.signal(signum, _exit) for signum in SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
