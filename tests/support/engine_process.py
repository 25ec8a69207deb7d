# SPDX-License-Identifier: Apache-2.0
"""Engines in a process beside the test's own: jobs in, one outcome per job out."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ROOT = Path(__file__).resolve().parents[2]

#: For every such process: the engine core in it, quiet about usage, threads that do not spin.
COMMON_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "INFO",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

TIMEOUT_S = 1200

_MARK = "OUTCOME "


def print_outcome(outcome: Mapping[str, Any]) -> None:
    """What the program prints for a job, among the output of its engine."""
    print(_MARK + json.dumps(outcome), flush=True)


def run_program(
    command: Sequence[str], jobs: Sequence[DataclassInstance], environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Run ``command`` with a file of ``jobs`` as one more argument, from the repository's root.

    Returns what it printed, each with the output before it as ``log``.

    Raises:
        RuntimeError: it ended early; the message ends with its output.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([asdict(job) for job in jobs], file)
        file.flush()
        result = subprocess.run(
            [*command, file.name],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    outcomes: list[dict[str, Any]] = []
    log: list[str] = []
    for line in result.stdout.splitlines():
        if line.startswith(_MARK):
            outcomes.append({**json.loads(line.removeprefix(_MARK)), "log": "\n".join(log)})
            log.clear()
        else:
            log.append(line)
    if result.returncode or len(outcomes) != len(jobs):
        raise RuntimeError(
            f"engine {len(outcomes) + 1} of {len(jobs)} ended with exit code {result.returncode}:\n"
            + "\n".join(log)[-8000:]
        )
    return outcomes
