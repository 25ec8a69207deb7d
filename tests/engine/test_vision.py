# SPDX-License-Identifier: Apache-2.0
"""A vision-language target in the real engine, asked with and without a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.drafts import DraftSpec
from tests.support.proposals import Job, run
from tests.support.rotations import real_rotation
from tests.support.vision_target import (
    HIDDEN,
    PROMPT,
    draft_config,
    picture,
    rotated_vision_copy,
    vision_target,
    vocabulary_of,
)

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

TEXTS = ("the river and", "a small house", "when we were")


def test_pictures_and_text_get_the_proposals_of_the_original(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#8765: the first tensor of the index is a vision weight."""
    original = vision_target(tmp_path / "original")
    rotated = rotated_vision_copy(original, tmp_path / "rotated", real_rotation(HIDDEN))
    vocabulary = vocabulary_of(original)
    draft = DraftSpec(
        hidden=HIDDEN,
        vocabulary=vocabulary,
        heads=3,
        kv_heads=1,
        head_dim=32,
        own_embedding=False,
        own_head=False,
        extra=draft_config(vocabulary),
    ).write(tmp_path / "draft")
    common: dict[str, Any] = {
        "draft": str(draft),
        "max_tokens": 12,
        "settings": {"original_model": str(original)},
        # With its cache, or to profile videos, vLLM 0.23 hands texts without their pictures to the
        # processor, which newer releases of transformers refuse.
        "engine": {"limit_mm_per_prompt": {"image": 1, "video": 0}, "mm_processor_cache_gb": 0},
    }
    pictured: dict[str, Any] = {
        "prompts": [PROMPT + text for text in TEXTS],
        "requests": [{"image": str(picture(tmp_path / "picture.png"))}] * len(TEXTS),
        **common,
    }
    seen, seen_rotated, read, read_rotated, off = run(
        [
            Job(str(original), **pictured),
            Job(str(rotated), **pictured),
            Job(str(original), prompts=list(TEXTS), **common),
            Job(str(rotated), prompts=list(TEXTS), **common),
            Job(str(rotated), **{**pictured, "settings": {"mode": "off"}}),
        ]
    )
    for expected, actual in ((seen, seen_rotated), (read, read_rotated)):
        assert actual.tokens == expected.tokens
        assert actual.proposals == expected.proposals
        assert "the target's embedding (shared, un-rotated at look-up)" in actual.log
    # The comparisons say something: pictures change the answer, and so does the correction.
    assert seen.tokens != read.tokens
    assert off.tokens == seen.tokens
    assert off.proposals != seen.proposals
