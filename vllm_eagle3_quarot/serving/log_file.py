# SPDX-License-Identifier: Apache-2.0
"""Find in a server's log the line that says why it stopped."""

from __future__ import annotations

import re
from pathlib import Path

PROCESS_PREFIX = re.compile(r"^\(\w+ pid=\d+\)\s?")
LOGGER_PREFIX = re.compile(r"^(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")
EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): \S")
USAGE_ERROR = re.compile(r"^[\w .-]+: error: \S")

CONSEQUENCES = (
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "Engine core proc",
)
"""vLLM's lines about a failure that another process has explained already."""


def last_error(log: Path) -> str | None:
    """Return the last line that names a cause, without vLLM's prefixes; None if there is none.

    A line about an exception wins over a line logged as ERROR, and a cause over its consequences
    in the parent processes.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    causes: list[str] = []
    consequences: list[str] = []
    logged: list[str] = []
    for raw in text.splitlines():
        line = PROCESS_PREFIX.sub("", raw)
        prefix = LOGGER_PREFIX.match(line)
        message = LOGGER_PREFIX.sub("", line).rstrip()
        if EXCEPTION.match(message) or USAGE_ERROR.match(message):
            known = any(phrase in message for phrase in CONSEQUENCES)
            (consequences if known else causes).append(message)
        elif prefix is not None and prefix["level"] in ("ERROR", "CRITICAL") and message.strip():
            logged.append(message.strip())
    for found in (causes, consequences, logged):
        if found:
            return found[-1]
    return None
