# SPDX-License-Identifier: Apache-2.0
"""Runs the programs that the harness builds."""

from __future__ import annotations

import errno
import subprocess
import time
from collections.abc import Sequence

# What a machine that is short of memory answers, or one on which another thread's child still holds
# the file that the linker wrote. It says nothing about the program.
NOT_NOW = frozenset({errno.EAGAIN, errno.EFAULT, errno.EIO, errno.ENOMEM, errno.ETXTBSY})
PAUSES_S = (1.0, 4.0, 15.0)


def run_program(
    arguments: Sequence[str], *, timeout_s: float, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; one that the machine can't start just now is started again.

    Raises:
        OSError: it can't be started.
        subprocess.TimeoutExpired: it does not end.
    """
    for pause_s in PAUSES_S:
        try:
            return _run(arguments, timeout_s, stdin)
        except OSError as error:
            if error.errno not in NOT_NOW:
                raise
            time.sleep(pause_s)
    return _run(arguments, timeout_s, stdin)


def _run(
    arguments: Sequence[str], timeout_s: float, stdin: str | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=timeout_s, input=stdin)
