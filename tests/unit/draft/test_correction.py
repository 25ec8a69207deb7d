# SPDX-License-Identifier: Apache-2.0
"""The decision whether a target has to be un-rotated, and what is refused before anything loads."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from tests.support.checkpoints import write_json, write_sidecar, write_target
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.correction import correction_of, rotation_of
from vllm_eagle3_quarot.errors import CheckpointError, RotationError, UnsupportedPairError
from vllm_eagle3_quarot.settings import Settings

Q = hadamard_rotation(64)


def test_sidecar_switches_the_correction_on(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#6445: no flag is needed when the checkpoint says what it is."""
    target = TargetFacts.from_folder(write_target(tmp_path / "t", Q))
    rotation = rotation_of(target, Settings())
    assert rotation is not None
    assert torch.equal(rotation.dense(), Q)


def test_unrotated_target_needs_nothing(tmp_path: Path) -> None:
    target = TargetFacts.from_folder(write_target(tmp_path / "t", None))
    assert rotation_of(target, Settings()) is None


def test_online_rotation_inside_layers_is_not_a_residual_rotation(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#8401: heads and Kronecker rotations leave the stream alone."""
    folder = write_target(tmp_path / "t", None)
    metadata = {"quarot": {"max_tp_size": 2, "heads_rotation": {"layers": ["o_proj"]}}}
    write_json(
        folder / "quant_model_description.json",
        {"version": "1.0.0", "metadata": metadata, "optional": {}},
    )
    assert rotation_of(TargetFacts.from_folder(folder), Settings()) is None


def test_mode_off_leaves_a_rotated_target_alone(tmp_path: Path) -> None:
    off = Settings(mode="off")
    assert correction_of(write_target(tmp_path / "t", Q), "no draft", off) is None
    assert correction_of(tmp_path / "no target", "no draft", off) is None


def test_rotated_without_rotation_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "t", Q, sidecar=False, optional={})
    with pytest.raises(RotationError, match="brings no rotation file") as caught:
        rotation_of(TargetFacts.from_folder(folder), Settings())
    for part in (str(folder), "optional/quarot.safetensors", '"rotation"', "quantise again"):
        assert part in str(caught.value)


def test_a_description_that_claims_rotation_is_enough(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#12775: some exports only say ``is_rot_used``."""
    folder = write_target(tmp_path / "t", None)
    write_json(folder / "quant_model_description.json", {"is_rot_used": True})
    with pytest.raises(RotationError, match="brings no rotation file"):
        rotation_of(TargetFacts.from_folder(folder), Settings())


def test_rotation_setting_supplies_a_missing_file(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "t", Q, sidecar=False, optional={})
    supplied = write_sidecar(tmp_path / "elsewhere", Q)
    rotation = rotation_of(TargetFacts.from_folder(folder), Settings(rotation=str(supplied)))
    assert rotation is not None
    assert rotation.source == str(supplied)
    with pytest.raises(RotationError, match=r"nowhere\.safetensors"):
        rotation_of(
            TargetFacts.from_folder(folder),
            Settings(rotation=str(tmp_path / "nowhere.safetensors")),
        )


@pytest.mark.parametrize("tie", [{"tied": True, "broken_tie": True}, {"tied": True}], ids=str)
def test_doubly_rotated_tied_export_is_refused(tmp_path: Path, tie: dict[str, bool]) -> None:
    folder = write_target(tmp_path / "t", Q, **tie)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedPairError, match="tie_word_embeddings: false"):
        rotation_of(TargetFacts.from_folder(folder), Settings())


def test_not_strict_warns_and_serves_uncorrected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_target(tmp_path / "t", Q, sidecar=False, optional={})
    with caplog.at_level(logging.WARNING, logger="vllm.eagle3_quarot"):
        assert correction_of(folder, "no draft", Settings(strict=False)) is None
    assert "uncorrected" in caplog.text
    assert "brings no rotation file" in caplog.text


def test_broken_files_are_refused_even_when_nothing_says_rotated(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "t", None)
    (folder / "quant_model_description.json").write_text("{")
    with pytest.raises(CheckpointError):
        rotation_of(TargetFacts.from_folder(folder), Settings())


def test_draft_is_not_looked_at_unless_the_target_is_rotated(tmp_path: Path) -> None:
    """A draft that the engine finds by its own means is no reason to stop a server."""
    assert correction_of(write_target(tmp_path / "t", None), "no/such draft", Settings()) is None
    with pytest.raises(CheckpointError, match="no/such draft"):
        correction_of(write_target(tmp_path / "r", Q), "no/such draft", Settings())
