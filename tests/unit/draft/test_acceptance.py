# SPDX-License-Identifier: Apache-2.0
"""The acceptance guard's judgement."""

from __future__ import annotations

from vllm_eagle3_quarot.draft.acceptance import AcceptanceWindow, Verdict
from vllm_eagle3_quarot.settings import GuardSettings

HUNDRED = GuardSettings(min_acceptance=0.1, after_drafts=100)


def verdicts(rates: list[float], settings: GuardSettings = HUNDRED) -> list[Verdict | None]:
    """One verdict for each window of 100 drafts, counted in steps of 50 whose rates differ."""
    window = AcceptanceWindow(settings)
    result = []
    for rate in rates:
        assert window.add(50, 0) is None
        result.append(window.add(50, round(100 * rate)))
    return result


def test_a_server_that_accepts_is_left_alone() -> None:
    assert verdicts([0.5, 0.1, 0.9]) == [None, None, None]


def test_the_first_low_window_warns_and_the_next_ones_do_not() -> None:
    assert verdicts([0.09, 0.0, 0.05]) == ["collapsed", None, None]


def test_a_later_collapse_is_seen_as_well_as_an_early_one() -> None:
    assert verdicts([0.5, 0.5, 0.01]) == [None, None, "collapsed"]


def test_recovery_is_told_once_and_then_the_guard_is_silent() -> None:
    assert verdicts([0.0, 0.3, 0.0, 0.3]) == ["collapsed", "recovered", None, None]


def test_the_rate_is_that_of_the_last_full_window() -> None:
    window = AcceptanceWindow(HUNDRED)
    window.add(100, 3)
    window.add(60, 60)
    assert window.rate == 0.03


def test_a_step_of_many_requests_may_overrun_the_window() -> None:
    window = AcceptanceWindow(HUNDRED)
    assert window.add(250, 10) == "collapsed"
    assert window.rate == 0.04
