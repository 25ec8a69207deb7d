# SPDX-License-Identifier: Apache-2.0
"""vLLM's model runner V2, the default for dense float targets on GPUs: the same proposals.

It has a proposer of its own (``EagleSpeculator``), which shares tables and asks the draft's class
for combined states and logits at other places than V1 does.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import reference_pair as pair
from tests.support.drafts import DraftSpec
from tests.support.proposals import Job, Outcome, run
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import real_rotation

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

pytest.importorskip(
    "triton", reason="Triton's interpreter runs the kernels; it is 640 MB that nothing else needs"
)

DRAFTS = ("own head", "nothing of its own")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Outcome, Outcome]]:
    folder = tmp_path_factory.mktemp("second runner")
    original = copy_in_fp32(pair.FLOAT_TARGET, folder / "original")
    rotated = rotated_copy(pair.FLOAT_TARGET, folder / "rotated", real_rotation(192))
    trained = pair.variant(folder / "trained", pair.without("embed_tokens.weight"))
    bare = DraftSpec(
        hidden=192,
        vocabulary=2048,
        heads=3,
        head_dim=64,
        own_embedding=False,
        own_head=False,
        norm_before_fc=True,
    ).write(folder / "bare")
    common: dict[str, Any] = {
        "prompts": pair.prompts(3),
        "max_tokens": 16,
        "settings": {"original_model": str(original)},
    }
    jobs = [
        Job(str(target), str(draft), **common)
        for draft in (trained, bare)
        for target in (original, rotated)
    ]
    results = run(jobs, program=["tests.support.second_runner"])
    return dict(zip(DRAFTS, zip(results[::2], results[1::2], strict=True), strict=True))


@pytest.mark.parametrize("draft", DRAFTS)
def test_proposals_equal_those_on_the_unrotated_target(
    draft: str, outcomes: dict[str, tuple[Outcome, Outcome]]
) -> None:
    original, rotated = outcomes[draft]
    for outcome in (original, rotated):
        assert outcome.ranks[0]["runner"] == "vllm.v1.worker.cpu.model_runner"
    assert rotated.tokens == original.tokens
    assert rotated.proposals == original.proposals
    decisions = rotated.ranks[0]["decisions"]
    assert decisions["embedding is the target's"] is True
    assert decisions["head is the target's"] is (draft == "nothing of its own")


def test_trained_draft_is_accepted(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    """Guards the comparison: both could be wrong in the same way."""
    _, rotated = outcomes["own head"]
    assert rotated.acceptance > 0.6
