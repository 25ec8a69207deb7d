# SPDX-License-Identifier: Apache-2.0
"""A target rotated by the library of another quantiser, in the real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import recorded
from tests.support import reference_pair as pair
from tests.support.drafts import DraftSpec
from tests.support.proposals import Job, run
from tests.support.rotated_copy import copy_in_fp32
from tests.support.spinquant import spinquant_copy

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def test_spinquant_target_gets_the_proposals_of_the_original(tmp_path: Path) -> None:
    """vllm-project/llm-compressor#1615: R1 is in the weights, and no file has the matrix."""
    original = copy_in_fp32(pair.FLOAT_TARGET, tmp_path / "original")
    rotated = spinquant_copy(
        pair.FLOAT_TARGET,
        tmp_path / "rotated",
        R1=recorded.r1(type="random-hadamard"),
        R2=recorded.r2(),
    )
    bare = DraftSpec(
        hidden=192,
        vocabulary=2048,
        heads=3,
        kv_heads=1,
        head_dim=64,
        own_embedding=False,
        own_head=False,
    ).write(tmp_path / "bare")
    jobs = []
    for draft, settings in (
        (pair.DRAFT, {}),
        (bare, {"original_model": str(original)}),
    ):
        common: dict[str, Any] = {
            "draft": str(draft),
            "prompts": pair.prompts(3),
            "max_tokens": 16,
            "settings": settings,
        }
        jobs += [Job(str(original), **common), Job(str(rotated), **common)]
    trained, trained_on_rotated, random, random_on_rotated = run(jobs)
    for expected, actual in ((trained, trained_on_rotated), (random, random_on_rotated)):
        assert actual.tokens == expected.tokens
        assert actual.proposals == expected.proposals
        assert "rebuilt from 'quantization_config.transform_config.config_groups.R1'" in actual.log
    assert trained_on_rotated.acceptance > 0.6
