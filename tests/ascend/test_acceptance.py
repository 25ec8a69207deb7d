# SPDX-License-Identifier: Apache-2.0
"""Acceptance on the real vllm-ascend engine: un-rotated, as its own fold, and not at all.

The engine is vllm-ascend 0.23.0 with its quantisation, worker, runner and proposer unmodified; the
device is a fake whose operators the CPU computes. What is shown is that plugin and host fit
together and that the draft is corrected once; nothing about an NPU's rounding or speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ascend import targets
from tests.ascend.conftest import RunJobs
from tests.ascend.jobs import Job, Outcome
from tests.support import reference_pair as pair
from vllm_eagle3_quarot.settings import DISABLE_VARIABLE

#: Between two runs of one draft: int8 and bf16 round rotated and unrotated states differently.
SAME = 0.06
#: A draft on states that are still rotated; the reference pair gives 0.02.
NOTHING = 0.1


@dataclass(frozen=True)
class Row:
    """A target and who corrects the draft."""

    target: Callable[[Path], Path]
    mode: str = "runtime"


ROWS: dict[str, Row] = {
    "float": Row(targets.float_target),
    "float, rotated": Row(targets.rotated_float_target),
    "W8A8": Row(lambda _: targets.W8A8),
    "W8A8 QuaRot": Row(lambda _: targets.W8A8_QUAROT),
    "W8A8 QuaRot, our fold": Row(lambda _: targets.W8A8_QUAROT, "fold"),
    "W8A8 QuaRot, the host's own fold": Row(lambda _: targets.W8A8_QUAROT, "off"),
    "W8A8 QuaRot, neither": Row(
        lambda folder: targets.without_pointer(targets.W8A8_QUAROT, folder), "off"
    ),
}


@pytest.fixture(scope="module")
def outcomes(
    run_jobs: RunJobs,
    note: Callable[[str, Outcome], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("targets")
    jobs = [
        Job(
            target=str(row.target(folder / str(number))),
            draft=str(pair.DRAFT),
            prompts=pair.prompts(8),
            max_tokens=32,
            settings={"mode": row.mode},
        )
        for number, row in enumerate(ROWS.values())
    ]
    made = dict(zip(ROWS, run_jobs(jobs), strict=True))
    for name, outcome in made.items():
        note(name, outcome)
    return made


@pytest.fixture(scope="module")
def without_plugin(run_jobs: RunJobs, note: Callable[[str, Outcome], None]) -> Outcome:
    """vllm-ascend by itself: a process in which nothing of ours was registered."""
    job = Job(str(targets.W8A8_QUAROT), str(pair.DRAFT), pair.prompts(8), max_tokens=32)
    (outcome,) = run_jobs([job], environment={DISABLE_VARIABLE: "1"})
    note("W8A8 QuaRot, plugin not registered", outcome)
    return outcome


@pytest.mark.parametrize("name", ROWS)
def test_text_is_the_unrotated_targets(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].tokens == outcomes["float"].tokens, outcomes[name].error


@pytest.mark.parametrize(
    ("rotated", "original"), [("float, rotated", "float"), ("W8A8 QuaRot", "W8A8")]
)
def test_acceptance_is_the_unrotated_pairs(
    rotated: str, original: str, outcomes: dict[str, Outcome]
) -> None:
    """The host's fold was assigned as well; both together would give as little as none."""
    assert outcomes[original].acceptance > 0.6
    assert outcomes[rotated].acceptance == pytest.approx(outcomes[original].acceptance, abs=SAME)
    assert "un-rotated before norms and fc" in outcomes[rotated].log
    assert "un-rotated before norms and fc" not in outcomes[original].log


def test_our_fold_is_not_added_to_the_hosts(outcomes: dict[str, Outcome]) -> None:
    folded = outcomes["W8A8 QuaRot, our fold"]
    assert folded.acceptance == pytest.approx(outcomes["W8A8"].acceptance, abs=SAME)
    assert "into which Q was folded" in folded.log


def test_the_hosts_own_fold_is_left_alone_when_switched_off(outcomes: dict[str, Outcome]) -> None:
    folded = outcomes["W8A8 QuaRot, the host's own fold"]
    assert folded.acceptance == pytest.approx(outcomes["W8A8"].acceptance, abs=SAME)
    assert "un-rotated before norms and fc" not in folded.log


def test_switched_off_means_vllm_ascend_by_itself(
    outcomes: dict[str, Outcome], without_plugin: Outcome
) -> None:
    folded = outcomes["W8A8 QuaRot, the host's own fold"]
    assert without_plugin.tokens == folded.tokens
    assert without_plugin.proposals == folded.proposals
    assert "eagle3_quarot:" not in without_plugin.log


def test_without_any_correction_nothing_is_accepted(outcomes: dict[str, Outcome]) -> None:
    """Guards the rows above: the rotation is real, and something has to undo it."""
    assert outcomes["W8A8 QuaRot, neither"].acceptance < NOTHING
