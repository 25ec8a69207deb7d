# SPDX-License-Identifier: Apache-2.0
"""What is said of the seconds between two looks at a server."""

from __future__ import annotations

from vllm_eagle3_quarot.observability.counters import SpecCounters
from vllm_eagle3_quarot.observability.interval import Interval
from vllm_eagle3_quarot.observability.scrape import Snapshot


def _seen(at: float, drafts: int, accepted: tuple[int, ...]) -> Snapshot:
    counters = SpecCounters(
        drafts, drafts * len(accepted), sum(accepted), accepted, drafts + sum(accepted)
    )
    return Snapshot(at, ("reference",), counters, 0, 0)


def test_rates_are_of_the_interval_alone() -> None:
    interval = Interval.between(_seen(1.0, 10, (1, 0)), _seen(3.0, 30, (11, 5)))
    assert interval is not None
    assert interval.acceptance == (0.5, 0.25)
    assert interval.mean_acceptance_length == 1.75
    assert interval.output_tokens_per_second == 17.5
    assert interval.drafted_tokens_per_second == 20.0


def test_an_idle_server_has_no_rates() -> None:
    idle = Interval.between(_seen(1.0, 10, (1, 0)), _seen(3.0, 10, (1, 0)))
    assert idle is not None
    assert idle.acceptance is None
    assert idle.mean_acceptance_length is None
    assert idle.output_tokens_per_second == 0.0


def test_a_server_that_was_started_anew_has_no_interval() -> None:
    """Counts fell, or another number of tokens is drafted."""
    assert Interval.between(_seen(1.0, 10, (1, 0)), _seen(3.0, 5, (1, 0))) is None
    assert Interval.between(_seen(1.0, 10, (1, 0)), _seen(3.0, 50, (1, 0, 0))) is None
