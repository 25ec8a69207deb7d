# SPDX-License-Identifier: Apache-2.0
"""Comparing functions on a machine that is never quite still: interleaved runs, paired ratios."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Sample:
    """Seconds per call of every contender in every round; round r of all of them is one moment."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, other: str) -> tuple[float, float, float]:
        """Median, smallest and largest of ``name ÷ other`` over the rounds."""
        ratios = [a / b for a, b in zip(self.seconds[name], self.seconds[other], strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def interleave(
    contenders: Mapping[str, Callable[[int], object]], *, rounds: int, sets: int, seconds: float
) -> Sample:
    """Time every contender ``rounds`` times, in turn.

    A contender gets the number of the input set to use; successive calls use successive sets, so
    that no call finds its input in a cache. One turn of a contender takes about ``seconds``, and at
    least one call.
    """
    calls = {}
    for name, call in contenders.items():
        call(0)
        calls[name] = max(1, round(seconds / max(_time(call, 2, sets), 1e-7)))
    recorded: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            recorded[name].append(_time(call, calls[name], sets))
    return Sample(recorded)


def machine() -> dict[str, object]:
    """What a reader needs to know to judge the numbers."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "load_average": os.getloadavg()[0],
    }


def _time(call: Callable[[int], object], calls: int, sets: int) -> float:
    start = time.perf_counter()
    for index in range(calls):
        call(index % sets)
    return (time.perf_counter() - start) / calls
