# SPDX-License-Identifier: Apache-2.0
"""Mixture-of-experts targets in the real engine.

Two right answers. In floating point: a draft proposes on the rotated target what it proposes on the
original one. On the checkpoint of the real msModelSlim there is no such twin, because rotating
before rounding to 8 bits moves the rounding errors; but there is a draft that was aligned with the
checkpoint in fp64 and needs no correction. On one and the same target, the draft that is corrected
while it runs has to propose what the aligned one proposes.

Weights are random, so nothing is accepted and the target's text says little; token ids of all
proposals are compared.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from safetensors.torch import load_file
from transformers import AutoTokenizer

from tests.support import moe_target, reference_pair
from tests.support.proposals import Job, Outcome, run
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import real_rotation
from tests.unit.cpu.reference_model import check_greedy_tokens
from tools.moe_target.float_model import SETTINGS, write_float_model

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

#: vLLM 0.23's own experts in floating point need multiples of 32 on the CPU; they end in an
#: AssertionError with other sizes.
FLOAT_SETTINGS = replace(SETTINGS, hidden_size=96, expert_size=64)

PROMPTS = reference_pair.prompts(3)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("moe")
    wide = write_float_model(folder / "float wide", FLOAT_SETTINGS)
    original = copy_in_fp32(wide, folder / "original")
    rotated = rotated_copy(wide, folder / "rotated", real_rotation(FLOAT_SETTINGS.hidden_size))
    wide_draft = replace(moe_target.SHARING, hidden=FLOAT_SETTINGS.hidden_size)
    wide_sharing = wide_draft.write(folder / "wide sharing")

    quantised = moe_target.servable(moe_target.ROTATED, folder / "quantised")
    source = write_float_model(folder / "float")
    final_norm = load_file(source / "model.safetensors")["model.norm.weight"]
    sharing = moe_target.SHARING.write(folder / "sharing")
    aligned = moe_target.aligned_draft(folder / "aligned", final_norm)

    unrotated = moe_target.servable(moe_target.UNROTATED, folder / "unrotated")
    independent = moe_target.INDEPENDENT.write(folder / "independent")

    settings = {"original_model": str(source)}
    off = {"mode": "off"}
    cases = {
        "float": (original, wide_sharing, {"original_model": str(original)}),
        "rotated float": (rotated, wide_sharing, {"original_model": str(original)}),
        "quantised": (quantised, sharing, settings),
        "quantised, aligned draft": (quantised, aligned, off),
        "quantised, off": (quantised, sharing, off),
        "unrotated": (unrotated, independent, {}),
    }
    jobs = [
        Job(
            target=str(target),
            draft=str(draft),
            prompts=PROMPTS,
            max_tokens=16,
            settings=choice,
        )
        for target, draft, choice in cases.values()
    ]
    return dict(zip(cases, run(jobs), strict=True))


def test_rotated_float_experts(outcomes: dict[str, Outcome]) -> None:
    original, rotated = outcomes["float"], outcomes["rotated float"]
    assert rotated.tokens == original.tokens
    assert rotated.proposals == original.proposals
    assert "un-rotated before norms and fc" in rotated.log
    assert "un-rotated before norms and fc" not in original.log


def test_quantised_experts(outcomes: dict[str, Outcome]) -> None:
    corrected, aligned = outcomes["quantised"], outcomes["quantised, aligned draft"]
    assert corrected.tokens == aligned.tokens
    assert corrected.proposals == aligned.proposals
    assert "un-rotated before norms and fc" in corrected.log


@pytest.mark.parametrize(
    ("case", "checkpoint"),
    [("quantised", moe_target.ROTATED), ("unrotated", moe_target.UNROTATED)],
)
def test_the_targets_text_is_that_of_the_checkpoints_arithmetic(
    outcomes: dict[str, Outcome], case: str, checkpoint: str
) -> None:
    """Router quantised in the one, in floating point in the other."""
    tokenizer = AutoTokenizer.from_pretrained(reference_pair.FLOAT_TARGET)
    prompts = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    check_greedy_tokens(moe_target.FIXTURES / checkpoint, prompts, outcomes[case].tokens)


def test_an_unrotated_mixture_is_left_alone(outcomes: dict[str, Outcome]) -> None:
    assert "un-rotated" not in outcomes["unrotated"].log


def test_the_comparison_sees_a_missing_correction(outcomes: dict[str, Outcome]) -> None:
    off = outcomes["quantised, off"]
    assert off.tokens == outcomes["quantised"].tokens
    assert off.proposals != outcomes["quantised"].proposals


def test_proposals_and_texts_are_not_constant(outcomes: dict[str, Outcome]) -> None:
    """Random weights could also have made a pair that says one token for ever."""
    for outcome in outcomes.values():
        assert len({token for tokens in outcome.tokens for token in tokens}) > 20
        proposed = [token for call in outcome.proposals for row in call for token in row]
        assert len(set(proposed)) > 20
