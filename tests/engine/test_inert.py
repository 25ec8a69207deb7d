# SPDX-License-Identifier: Apache-2.0
"""Where nothing has to be corrected, the engine does what it does without us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import reference_pair as pair
from tests.support.proposals import Job, run
from tests.support.rotated_copy import rotated_copy
from tests.support.rotations import real_rotation

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def test_unrotated_target_and_other_methods_are_left_alone(tmp_path: Path) -> None:
    rotated = rotated_copy(pair.FLOAT_TARGET, tmp_path / "rotated", real_rotation(192))
    prompts = pair.prompts(3)
    original = str(pair.FLOAT_TARGET)
    by_ngram, by_ngram_off, eagle3, eagle3_off = run(
        [
            Job(str(rotated), None, prompts, speculation={"prompt_lookup_max": 3}),
            Job(
                str(rotated),
                None,
                prompts,
                settings={"mode": "off"},
                speculation={"prompt_lookup_max": 3},
            ),
            Job(original, str(pair.DRAFT), prompts, dtype="bfloat16"),
            Job(original, str(pair.DRAFT), prompts, dtype="bfloat16", settings={"mode": "off"}),
        ]
    )
    # Another method on a rotated target: not even the draft classes are imported.
    assert "vllm_eagle3_quarot.plugin" in by_ngram.modules
    for module in ("draft_mixin", "draft_models", "shared_embedding"):
        assert f"vllm_eagle3_quarot.integrations.{module}" not in by_ngram.modules
    assert "vllm_eagle3_quarot.ops" not in by_ngram.modules
    assert by_ngram.tokens == by_ngram_off.tokens
    # An unrotated target: the same tokens and proposals, and no word of a correction.
    assert eagle3.tokens == eagle3_off.tokens
    assert eagle3.proposals == eagle3_off.proposals
    assert "un-rotated" not in eagle3.log
    assert "operators on the CPU run as" not in eagle3.log
