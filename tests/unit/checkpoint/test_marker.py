# SPDX-License-Identifier: Apache-2.0
"""The mark of an aligned draft, and what the plugin does when it meets one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.rotations import dense_rotation, real_rotation
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.marker import AlignmentMarker
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.settings import Settings

Q = real_rotation(96)


def _aligned(folder: Path) -> tuple[Path, Path]:
    target = write_target(folder / "target", Q)
    draft = DraftSpec(hidden=96).write(folder / "draft", embedding(96, 96))
    rotation = Rotation.from_checkpoint(target)
    plan = plan_alignment(DraftFacts(draft), TargetFacts.from_folder(target), rotation)
    align(plan, folder / "aligned")
    return target, folder / "aligned"


def test_plugin_leaves_a_draft_of_the_same_rotation_alone(tmp_path: Path) -> None:
    target, draft = _aligned(tmp_path)
    published = correction_of(tmp_path / "target", str(tmp_path / "draft"), Settings())
    aligned = correction_of(target, str(draft), Settings())
    assert published is not None and published.mode == "runtime"
    assert aligned is not None and aligned.mode == "aligned"
    assert not aligned.acts_on_steps
    assert "a draft that was aligned offline to this rotation" in aligned.summary()


def test_plugin_refuses_a_draft_of_another_rotation(tmp_path: Path) -> None:
    _, draft = _aligned(tmp_path)
    other = write_target(tmp_path / "other", dense_rotation(96))
    with pytest.raises(UnsupportedPairError, match="aligned offline to the rotation"):
        correction_of(other, str(draft), Settings())


def test_plugin_refuses_an_aligned_draft_on_an_unrotated_target(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, draft = _aligned(tmp_path)
    unrotated = write_target(tmp_path / "unrotated", None, hidden=96)
    with pytest.raises(UnsupportedPairError, match=r"nothing says that the target .* is rotated"):
        correction_of(unrotated, str(draft), Settings())
    assert correction_of(unrotated, str(draft), Settings(strict=False)) is None
    assert "serving the draft uncorrected because 'strict' is false" in caplog.text
    assert correction_of(unrotated, str(draft), Settings(mode="off")) is None
    assert correction_of(unrotated, str(tmp_path / "draft"), Settings()) is None


def test_aligned_draft_on_a_target_that_cannot_be_looked_into_is_not_refused(
    tmp_path: Path,
) -> None:
    _, draft = _aligned(tmp_path)
    unrotated = write_target(tmp_path / "unrotated", None, hidden=96)
    (unrotated / "model.safetensors").rename(unrotated / "model.gguf")
    assert correction_of(unrotated, str(draft), Settings()) is None


def test_mark_survives_the_loss_of_either_copy(tmp_path: Path) -> None:
    _, draft = _aligned(tmp_path)
    fingerprint = Rotation.from_dense(Q).fingerprint
    config = json.loads((draft / "config.json").read_text())
    marker = config.pop("eagle3_quarot")
    assert marker["aligned"]["convention"].startswith("row vectors, h' = h Q")
    (draft / "config.json").write_text(json.dumps(config))
    found = DraftFacts(draft).alignment
    assert found is not None
    assert found.rotation == fingerprint


@pytest.mark.parametrize(
    "damaged",
    [
        {"aligned": 1},
        {"aligned": {}},
        {"aligned": {"rotation": 1, "tool": "1", "convention": ""}},
        {"aligned": {"rotation": "1", "tool": "1", "convention": "", "added": "fc"}},
        [],
        "aligned",
    ],
)
def test_damaged_mark_is_an_error(damaged: object) -> None:
    with pytest.raises(CheckpointError, match="eagle3_quarot"):
        AlignmentMarker.from_document({"eagle3_quarot": damaged}, Path("config.json"))
    text = json.dumps(damaged)
    with pytest.raises(CheckpointError, match="eagle3_quarot"):
        AlignmentMarker.from_metadata({"eagle3_quarot": text}, Path("f"))


def test_other_notes_under_the_key_are_no_mark() -> None:
    assert AlignmentMarker.from_document({"eagle3_quarot": {"note": 1}}, Path("c")) is None
    assert AlignmentMarker.from_document({}, Path("c")) is None
    assert AlignmentMarker.from_metadata({"format": "pt"}, Path("f")) is None
    with pytest.raises(CheckpointError, match="no JSON"):
        AlignmentMarker.from_metadata({"eagle3_quarot": "{"}, Path("f"))
