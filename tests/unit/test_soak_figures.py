# SPDX-License-Identifier: Apache-2.0
"""How a soak judges what it has observed (tests/reliability/observation.py)."""

from __future__ import annotations

import pytest

from tests.reliability.observation import INTERVAL_S, Sample, periods, slope
from tools.serving import SpecCounters


def samples(sizes: list[int]) -> list[Sample]:
    """One sample per interval; 10 drafts per second, of whose first tokens half are accepted."""
    found = []
    for number, size in enumerate(sizes):
        seconds = number * INTERVAL_S
        drafts = round(10 * seconds)
        counters = SpecCounters(drafts, drafts, drafts // 2, (drafts // 2,), drafts)
        found.append(Sample(seconds, {"Worker": size // 2, "EngineCore": size // 2}, counters))
    return found


def test_steady_growth_is_the_slope_whatever_the_noise() -> None:
    noise = [0, 300, -300, 100, -100]
    grown = samples([10_000 + 50 * n + noise[n % 5] for n in range(60)])
    assert slope(grown) == pytest.approx(50 / INTERVAL_S, rel=0.05)


def test_a_single_step_is_no_slope() -> None:
    assert slope(samples([10_000] * 40 + [90_000] * 5)) == 0


def test_periods_have_the_counts_of_their_time_and_no_rest() -> None:
    minutes = periods(samples([1000] * 31), 60.0)
    assert [(minute.start, minute.stop) for minute in minutes] == [(0, 60), (60, 120)]
    assert [minute.counters.drafts for minute in minutes] == [600, 600]
    assert minutes[1].counters.acceptance == (0.5,)
