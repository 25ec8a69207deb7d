# SPDX-License-Identifier: Apache-2.0
"""What an engine of vllm-ascend is asked to do, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.engine_process import COMMON_ENVIRONMENT, run_program

ENVIRONMENT = {
    **COMMON_ENVIRONMENT,
    # torch would import torch_npu by itself, before the fake CANN is there.
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    # An operator that fails does so where it is called.
    "TASK_QUEUE_ENABLE": "0",
    # Every allocation is the runtime's, which fills new memory with NaN: what nobody wrote shows.
    "PYTORCH_NO_NPU_MEMORY_CACHING": "1",
}


@dataclass(frozen=True)
class Job:
    """One engine and what it has to complete.

    Attributes:
        settings: ours, ``additional_config["eagle3_quarot"]``.
        host_settings: vllm-ascend's, beside ours.
        engine: further arguments of the engine.
        capture_sizes: token counts for which steps of decoding are captured as graphs; none: eager.
        poison_padding: rows by which the draft's input is padded to such a size hold NaN.
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
    engine: dict[str, Any] = field(default_factory=dict)
    capture_sizes: list[int] = field(default_factory=list)
    poison_padding: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        tokens: completed token ids per prompt.
        proposals: token ids that the proposer returned, call by call.
        drafted: draft tokens that were verified.
        accepted: those of them that were right.
        launches: of our kernel.
        replays: of graphs that hold all steps of a proposal.
        padding: rows of padding that the draft ran, over all calls.
        error: what ended the engine, else empty.
        log: the engine's output.
    """

    log: str
    tokens: list[list[int]] = field(default_factory=list)
    proposals: list[list[list[int]]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    launches: int = 0
    replays: int = 0
    padding: int = 0
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
    command = [str(interpreter), "-m", "tests.ascend.engines", str(folder)]
    outcomes = run_program(
        [*command, *["--kernel"] * kernel], jobs, {**ENVIRONMENT, **(environment or {})}
    )
    return [Outcome(**outcome) for outcome in outcomes]
