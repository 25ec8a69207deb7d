# SPDX-License-Identifier: Apache-2.0
"""An aligned draft on an engine that corrects nothing proposes what the original pair proposes.

That the runtime path proposes the same as the original pair is tests/engine/test_variants.py. The
correction is switched off by ``mode``, because vLLM's CPU platform needs the plugin's repairs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding
from tests.support.drafts import DraftSpec
from tests.support.proposals import Job, run
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.rotation import Rotation

pytestmark = pytest.mark.engine


def _aligned(draft: Path, target: Path, original: Path) -> Path:
    plan = plan_alignment(
        DraftFacts(draft),
        TargetFacts.from_folder(target),
        Rotation.from_checkpoint(target),
        TargetFacts.from_folder(original),
    )
    align(plan, draft.with_name(f"{draft.name}-aligned"))
    return draft.with_name(f"{draft.name}-aligned")


def test_same_proposals_without_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = copy_in_fp32(pair.FLOAT_TARGET, tmp_path / "original")
    rotated = rotated_copy(pair.FLOAT_TARGET, tmp_path / "rotated", real_rotation(192))
    trained = pair.variant(tmp_path / "trained", pair.without("embed_tokens.weight"))
    spec = DraftSpec(
        hidden=192, vocabulary=2048, heads=3, head_dim=64, norm_before_fc=True, own_head=False
    )
    random = spec.write(tmp_path / "random", embedding(2048, 192, seed=8))
    jobs = []
    for draft in (trained, random):
        aligned = _aligned(draft, rotated, original)
        jobs += [
            Job(str(target), str(model), pair.prompts(3), max_tokens=16, settings={"mode": "off"})
            for target, model in ((original, draft), (rotated, aligned), (rotated, draft))
        ]
    outcomes = run(jobs)
    for expected, aligned, uncorrected in (outcomes[:3], outcomes[3:]):
        assert aligned.tokens == expected.tokens == uncorrected.tokens
        assert aligned.proposals == expected.proposals
        assert uncorrected.proposals != expected.proposals
        assert "un-rotated" not in aligned.log
    assert outcomes[1].acceptance > 0.6
