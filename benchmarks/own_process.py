# SPDX-License-Identifier: Apache-2.0
"""A measurement in a process of its own, whose log may say anything before the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

MARK = "MEASURED "


def answer(numbers: Mapping[str, object]) -> None:
    """Tell the process that asked, from the one that measures."""
    print(MARK + json.dumps(numbers), flush=True)


def answer_of(arguments: list[str], environment: Mapping[str, str], what: str) -> dict[str, Any]:
    """Run ``python -m`` with these arguments and return what it answers.

    Raises:
        SystemExit: it ended without an answer; says that ``what`` failed, and the end of its log.
    """
    result = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, **environment, "VLLM_LOGGING_LEVEL": "WARNING"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    for line in result.stdout.splitlines():
        if line.startswith(MARK):
            numbers: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return numbers
    raise SystemExit(f"{what} failed:\n{result.stdout[-4000:]}")
