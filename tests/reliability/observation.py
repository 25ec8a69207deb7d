# SPDX-License-Identifier: Apache-2.0
"""Memory and counters of a running server, read again and again beside its clients."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations

import psutil

from tools.serving import Server, SpecCounters
from vllm_eagle3_quarot.serving.processes import session_members

INTERVAL_S = 5.0


@dataclass(frozen=True)
class Sample:
    """The server at one moment.

    Attributes:
        seconds: since the first sample.
        rss: resident bytes of each process, by a name that says what the process is.
        counters: what speculation has counted so far.
    """

    seconds: float
    rss: dict[str, int]
    counters: SpecCounters

    @property
    def total_rss(self) -> int:
        """Resident bytes of all processes; pages that they share count several times."""
        return sum(self.rss.values())


@dataclass(frozen=True)
class Period:
    """What speculation did from ``start`` to ``stop`` seconds after the first sample."""

    start: float
    stop: float
    counters: SpecCounters


@contextmanager
def observed(server: Server) -> Iterator[list[Sample]]:
    """Take a sample now, every :data:`INTERVAL_S` seconds, and one at the end."""
    samples: list[Sample] = []
    started = time.monotonic()
    over = threading.Event()

    def take() -> None:
        # The same client as the test's own thread, which is waiting for the crowd meanwhile.
        seconds = time.monotonic() - started
        samples.append(Sample(seconds, _resident(server.process.pid), server.counters()))

    def watch() -> None:
        while not over.wait(INTERVAL_S):
            take()

    take()
    watcher = threading.Thread(target=watch, name="observation", daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        over.set()
        watcher.join()
    take()


def slope(samples: Sequence[Sample]) -> float:
    """Growth of the resident memory in bytes per second: the median slope of all pairs (Theil-Sen).

    A single step, as when an allocator maps one more arena, moves a regression line and hardly
    moves this.
    """
    return statistics.median(
        (later.total_rss - earlier.total_rss) / (later.seconds - earlier.seconds)
        for earlier, later in combinations(samples, 2)
    )


def periods(samples: Sequence[Sample], seconds: float) -> list[Period]:
    """Cut the time of observation into periods of about ``seconds``; a short rest is left out."""
    found = []
    first = samples[0]
    for sample in samples[1:]:
        # Half an interval of tolerance: samples never come earlier than asked for.
        if sample.seconds - first.seconds >= seconds - INTERVAL_S / 2:
            counted = sample.counters - first.counters
            found.append(Period(first.seconds, sample.seconds, counted))
            first = sample
    return found


def _resident(session: int) -> dict[str, int]:
    rss: dict[str, int] = {}
    for process in session_members(session):
        with suppress(psutil.NoSuchProcess):
            name = _name(process, session)
            rss[name] = rss.get(name, 0) + process.memory_info().rss
    return rss


def _name(process: psutil.Process, session: int) -> str:
    if process.pid == session:
        return "API server"
    name = process.name()
    # vLLM names its processes; Python's resource tracker has the interpreter's name.
    return name.removeprefix("VLLM::") if name.startswith("VLLM::") else "resource tracker"
