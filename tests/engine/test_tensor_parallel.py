# SPDX-License-Identifier: Apache-2.0
"""Two tensor-parallel ranks, each a process: the same decisions, and the proposals of one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.support import reference_pair as pair
from tests.support.proposals import Job, Outcome, run
from tests.support.rotated_copy import rotated_copy
from tests.support.rotations import real_rotation

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

TWO_RANKS = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}

#: vLLM compiles the mask of a split vocabulary even in eager mode: more time than all the rest.
NOT_COMPILED = {"TORCH_COMPILE_DISABLE": "1"}

ACCEPTANCE_TOLERANCE = 0.06
"""Absolute. Each rank quantises the activations of its own slice, so rounding differs."""


@dataclass(frozen=True)
class Ranks:
    """The same job on one rank and on two: float weights, and the real tool's W8A8."""

    float_one: Outcome
    float_two: Outcome
    w8a8_one: Outcome
    w8a8_two: Outcome


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("ranks")
    rotated = rotated_copy(pair.FLOAT_TARGET, folder / "rotated", real_rotation(192))
    # Without tables of its own the draft uses the target's, of which each rank has a half.
    draft = pair.variant(
        folder / "draft",
        pair.without("embed_tokens.weight", "lm_head.weight", "d2t", "t2d"),
        lambda config: {**config, "draft_vocab_size": None},
    )
    original = {"original_model": str(pair.FLOAT_TARGET)}
    jobs = []
    for job in (
        Job(str(rotated), str(draft), pair.prompts(3), max_tokens=16, settings=original),
        Job(str(pair.ROTATED_TARGET), str(pair.DRAFT), pair.prompts(8), max_tokens=48),
    ):
        jobs += [job, replace(job, engine=TWO_RANKS, environment=NOT_COMPILED)]
    return Ranks(*run(jobs))


def test_proposals_equal_those_of_one_rank(ranks: Ranks) -> None:
    """Exact in fp32: rows of the split table are summed over the ranks and then un-rotated, and the
    split head gets the same rotated state on each."""
    assert ranks.float_two.tokens == ranks.float_one.tokens
    assert ranks.float_two.proposals == ranks.float_one.proposals


def test_acceptance_of_the_quantised_target_is_that_of_one_rank(ranks: Ranks) -> None:
    expected = ranks.w8a8_one.acceptance
    assert ranks.w8a8_two.acceptance == pytest.approx(expected, abs=ACCEPTANCE_TOLERANCE)
    assert ranks.w8a8_two.acceptance > 0.6


@pytest.mark.parametrize("target", ["float", "w8a8"])
def test_every_rank_decides_and_proposes_the_same(ranks: Ranks, target: str) -> None:
    """Decided from files, never from a shard; ranks that differ would wait for each other."""
    (alone,) = getattr(ranks, f"{target}_one").ranks
    first, second = getattr(ranks, f"{target}_two").ranks
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["decisions"] == second["decisions"] == alone["decisions"]
    assert first["proposals"] == second["proposals"]
    assert alone["decisions"]["embedding"] == "shared"
    assert alone["decisions"]["embedding is the target's"] is True
    assert alone["decisions"]["head is the target's"] is (target == "float")
