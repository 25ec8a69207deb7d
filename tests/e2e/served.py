# SPDX-License-Identifier: Apache-2.0
"""One server started, measured and stopped, as a value that several tests can look at."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.serving import GreedyRun, ServeOptions, Server, StopReport, greedy_run
from vllm_eagle3_quarot.serving.processes import session_members

PROMPTS = 32
MAX_TOKENS = 64

DTYPE = "float32"
"""All servers compute in fp32, so that checking four tokens at once rounds like making one."""


@dataclass(frozen=True)
class Served:
    """What is left of a server that has been stopped.

    Attributes:
        run: greedy completions of the reference prompts, and the counters meanwhile.
        stop: how it ended.
        left_behind: processes of its session that were still alive afterwards.
        log: its whole output.
    """

    run: GreedyRun
    stop: StopReport
    left_behind: int
    log: str


def serve_once(
    options: ServeOptions, prompts: Sequence[str], log: Path, sig: signal.Signals
) -> Served:
    """Start a server, complete the prompts greedily, stop it with ``sig``."""
    with Server.of(replace(options, dtype=DTYPE), log) as server:
        run = greedy_run(server, prompts[:PROMPTS], MAX_TOKENS)
        stop = server.stop(sig)
    left_behind = len(session_members(server.process.pid))
    return Served(run, stop, left_behind, log.read_text(encoding="utf-8", errors="replace"))
