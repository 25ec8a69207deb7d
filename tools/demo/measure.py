# SPDX-License-Identifier: Apache-2.0
"""Serve one configuration and complete the prompts with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tools.demo.configurations import Configuration
from tools.demo.progress import Progress
from tools.serving import GreedyRun, Server, greedy_run


def measure(
    configuration: Configuration,
    prompts: Sequence[str],
    max_tokens: int,
    logs: Path,
    port: int | None,
    progress: Progress,
) -> GreedyRun:
    """Start the server, run the prompts greedily, stop the server.

    Raises:
        ServingError: the port is taken, the server died or refused a request.
    """
    log = logs / f"{configuration.slug}.log"
    started = time.monotonic()
    with Server.of(configuration.options, log, port, progress.waiting) as server:
        progress.serving(time.monotonic() - started)
        run = greedy_run(
            server, prompts, max_tokens, lambda done: progress.prompts_done(done, len(prompts))
        )
        progress.measured(run)
    return run
