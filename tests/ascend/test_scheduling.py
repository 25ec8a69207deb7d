# SPDX-License-Identifier: Apache-2.0
"""How vllm-ascend schedules a proposal, which vLLM's CPU engine cannot vary: the same proposals.

Asynchronous scheduling prepares a step before the last one is known;
``disable_padded_drafter_batch`` takes rejected rows out of the draft's batch instead of computing
them along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.conftest import RunJobs
from tests.ascend.drafts import SHAPE
from tests.ascend.jobs import Job, Outcome
from tests.ascend.targets import float_target, rotated_float_target
from tests.support import reference_pair as pair

VARIANTS: dict[str, dict[str, Any]] = {
    "asynchronous": {"engine": {"async_scheduling": True}},
    "unpadded": {"speculation": {"disable_padded_drafter_batch": True}},
}


@pytest.fixture(scope="module")
def outcomes(
    run_jobs: RunJobs, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Outcome, Outcome]]:
    """Each on the original target and on the rotated one."""
    folder = tmp_path_factory.mktemp("pairs")
    original = float_target(folder / "original")
    rotated = rotated_float_target(folder / "rotated")
    draft = replace(SHAPE, own_embedding=False, norm_before_fc=True).write(folder / "draft")
    plain = Job(str(original), str(draft), pair.prompts(3), max_tokens=8, dtype="float32")
    jobs = []
    for options in VARIANTS.values():
        job = replace(plain, **options)
        jobs += [job, replace(job, target=str(rotated))]
    results = run_jobs(jobs)
    return dict(zip(VARIANTS, zip(results[::2], results[1::2], strict=True), strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_proposals_are_those_on_the_unrotated_target(
    variant: str, outcomes: dict[str, tuple[Outcome, Outcome]]
) -> None:
    original, corrected = outcomes[variant]
    assert not original.error and not corrected.error
    assert len({token for call in original.proposals for row in call for token in row}) > 8
    assert corrected.tokens == original.tokens
    assert corrected.proposals == original.proposals
    scheduled = "enabled" if variant == "asynchronous" else "disabled"
    assert f"Asynchronous scheduling is {scheduled}" in original.log + corrected.log


def test_text_is_the_same_however_it_is_scheduled(
    outcomes: dict[str, tuple[Outcome, Outcome]],
) -> None:
    assert outcomes["asynchronous"][0].tokens == outcomes["unpadded"][0].tokens
