# SPDX-License-Identifier: Apache-2.0
"""Every server under every load, round by round.

A round starts each server anew and gives it all loads, one server at a time. Rounds are what is
repeated: a machine that slows down slows all servers down, and a start is measured as often as
everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.matrix import Load, ServerSpec
from vllm_eagle3_quarot.benchmarking.measurement import Measurement
from vllm_eagle3_quarot.serving.ports import HOST, claim_port
from vllm_eagle3_quarot.serving.processes import session_members
from vllm_eagle3_quarot.serving.server import Server


@dataclass
class Served:
    """What was measured of one server, a value per round.

    Attributes:
        start_up_seconds: from the start of the process until it answers.
        peak_rss_bytes: sum of its processes' largest resident sets.
        loads: figures per load.
    """

    spec: ServerSpec
    start_up_seconds: list[float] = field(default_factory=list)
    peak_rss_bytes: list[int] = field(default_factory=list)
    loads: dict[Load, list[Measurement]] = field(default_factory=dict)


def run_matrix(
    servers: Sequence[ServerSpec],
    loads: Sequence[Load],
    client: Client,
    *,
    rounds: int,
    logs: Path,
    say: Callable[[str], None],
    start_timeout: float | None = None,
) -> list[Served]:
    """Measure; ``say`` gets a line for every step, a server ``start_timeout`` seconds to start.

    Raises:
        ServingError: a server or the client failed; logs of servers are under ``logs``.
    """
    results = [Served(spec) for spec in servers]
    for number in range(1, rounds + 1):
        for index, served in enumerate(results, 1):
            say(f"round {number}/{rounds}, server {index}/{len(results)}: {served.spec.title}")
            server = _server(served.spec, logs / f"{served.spec.slug}.log", start_timeout)
            _serve(server, served, loads, client, say)
    return results


def _server(spec: ServerSpec, log: Path, start_timeout: float | None) -> Server:
    port = claim_port(HOST, None)
    environment = spec.launch.full_environment()
    return Server(spec.launch.command(port), environment, port, log, None, start_timeout)


def _serve(
    server: Server,
    served: Served,
    loads: Sequence[Load],
    client: Client,
    say: Callable[[str], None],
) -> None:
    spec = served.spec
    started = time.monotonic()
    with server:
        served.start_up_seconds.append(time.monotonic() - started)
        client.warm_up(server, spec)
        for load in loads:
            measured = client.measure(server, spec, load)
            served.loads.setdefault(load, []).append(measured)
            length = measured.mean_acceptance_length
            say(
                f"    {load.sampling.value}, {load.concurrency} at a time: "
                f"{measured.output_tokens_per_second:.1f} tok/s"
                + (f", mean acceptance length {length:.2f}" if length is not None else "")
            )
        served.peak_rss_bytes.append(sum(map(_peak_rss, session_members(server.process.pid))))


def _peak_rss(process: psutil.Process) -> int:
    """Largest resident set that the process has had; 0 when it is gone."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii", errors="replace")
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
        resident: int = process.memory_info().rss
    except (OSError, psutil.Error):
        return 0
    return resident
