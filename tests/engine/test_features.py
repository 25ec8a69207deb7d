# SPDX-License-Identifier: Apache-2.0
"""Prefix caching, chunked prefill, structured output and LoRA: the same proposals on both targets.

One engine per target has all of them on, and rejected rows taken out of the draft's batch
(``disable_padded_drafter_batch``), which all other tests leave in. Each feature changes which rows
reach the draft, or what the target makes of them; none may change how they are un-rotated.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import reference_pair as pair
from tests.support.lora import write_adapter
from tests.support.proposals import Job, Outcome, run
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import real_rotation

#: One process builds both engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

Q = real_rotation(192)

BLOCK = 32
"""Tokens per block of the KV cache, and the most that are computed at once."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tame": {"type": "boolean"},
        "text": {"type": "string", "minLength": 60, "maxLength": 120},
    },
    "required": ["tame", "text"],
    "additionalProperties": False,
}

FEATURES: dict[str, Any] = {
    "enable_prefix_caching": True,
    "block_size": BLOCK,
    "enable_chunked_prefill": True,
    "max_num_batched_tokens": BLOCK,
    "enable_lora": True,
    "max_lora_rank": 8,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
}

PLAIN, LONG, AGAIN, STRUCTURED, ADAPTED = range(5)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """The original target and the rotated one, each with its form of the adapter."""
    folder = tmp_path_factory.mktemp("features")
    short, *others = pair.prompts(8)
    prompts = [short, " ".join(others), " ".join(others), short, short]
    jobs = []
    for name, q in (("original", None), ("rotated", Q)):
        target = (
            copy_in_fp32(pair.FLOAT_TARGET, folder / name)
            if q is None
            else rotated_copy(pair.FLOAT_TARGET, folder / name, q)
        )
        adapter = write_adapter(folder / f"adapter of {name}", pair.FLOAT_TARGET, q)
        requests: list[dict[str, Any]] = [{}, {}, {}, {"schema": SCHEMA}, {"lora": str(adapter)}]
        jobs.append(
            Job(
                str(target),
                str(pair.DRAFT),
                prompts,
                max_tokens=80,
                engine=FEATURES,
                speculation={"disable_padded_drafter_batch": True},
                requests=requests,
            )
        )
    return run(jobs)


def test_proposals_equal_those_on_the_unrotated_target(outcomes: list[Outcome]) -> None:
    original, rotated = outcomes
    assert rotated.tokens == original.tokens
    assert rotated.proposals == original.proposals
    assert "un-rotated before norms and fc" in rotated.log
    assert "un-rotated before norms and fc" not in original.log


def test_every_feature_was_at_work(outcomes: list[Outcome]) -> None:
    """Otherwise the comparison above compares nothing."""
    # The prompts have more tokens than a step may compute; vLLM says so for the first engine only.
    assert f"Chunked prefill is enabled with max_num_batched_tokens={BLOCK}" in outcomes[0].log
    for outcome in outcomes:
        assert outcome.cached[LONG] == 0 and outcome.cached[AGAIN] > BLOCK
        assert outcome.tokens[AGAIN] == outcome.tokens[LONG]
        assert set(json.loads(outcome.texts[STRUCTURED])) == set(SCHEMA["properties"])
        assert outcome.tokens[ADAPTED] != outcome.tokens[PLAIN]
