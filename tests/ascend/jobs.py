# SPDX-License-Identifier: Apache-2.0
"""What an engine of vllm-ascend is asked to do, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MARK = "ENGINE "

ENVIRONMENT = {
    # torch would import torch_npu by itself, before the fake CANN is there.
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    # An operator that fails does so where it is called.
    "TASK_QUEUE_ENABLE": "0",
    # Every allocation is the runtime's, which fills new memory with NaN: what nobody wrote shows.
    "PYTORCH_NO_NPU_MEMORY_CACHING": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "INFO",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Job:
    """One engine and what it has to complete.

    Attributes:
        settings: ours, ``additional_config["eagle3_quarot"]``.
        host_settings: vllm-ascend's, beside ours.
    """

    target: str
    draft: str | None
    prompts: list[str]
    max_tokens: int = 32
    num_speculative_tokens: int = 3
    dtype: str = "bfloat16"
    settings: dict[str, Any] = field(default_factory=dict)
    host_settings: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        tokens: completed token ids per prompt.
        proposals: token ids that the proposer returned, call by call.
        drafted: draft tokens that were verified.
        accepted: those of them that were right.
        launches: of our kernel.
        error: what ended the engine, else empty.
        log: the engine's output.
    """

    log: str
    tokens: list[list[int]] = field(default_factory=list)
    proposals: list[list[list[int]]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    launches: int = 0
    error: str = ""

    @property
    def acceptance(self) -> float:
        """Accepted share of drafted tokens, as the engine counts them; 0 where it drafted none."""
        return self.accepted / self.drafted if self.drafted else 0.0


def run(
    interpreter: Path,
    folder: Path,
    jobs: Sequence[Job],
    *,
    kernel: bool = False,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Run ``jobs`` in one process of ``interpreter``; ``folder`` is for the fake CANN.

    ``kernel``: our operators are the NPU library's, on emulated cores. ``environment``: variables
    of that process, beside :data:`ENVIRONMENT`.

    Raises:
        RuntimeError: the process ended early; the message ends with its output.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([asdict(job) for job in jobs], file)
        file.flush()
        result = subprocess.run(
            [str(interpreter), "-m", "tests.ascend.engines", file.name, str(folder)]
            + ["--kernel"] * kernel,
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1200,
            check=False,
        )
    outcomes: list[Outcome] = []
    log: list[str] = []
    for line in result.stdout.splitlines():
        if line.startswith(MARK):
            outcomes.append(Outcome(**json.loads(line.removeprefix(MARK)), log="\n".join(log)))
            log.clear()
        else:
            log.append(line)
    if result.returncode or len(outcomes) != len(jobs):
        raise RuntimeError(
            f"engine {len(outcomes) + 1} of {len(jobs)} ended with exit code {result.returncode}:\n"
            + "\n".join(log)[-8000:]
        )
    return outcomes
