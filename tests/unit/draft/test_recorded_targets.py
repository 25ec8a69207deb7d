# SPDX-License-Identifier: Apache-2.0
"""Targets of other quantisers: corrected, left alone or refused, from their record alone."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import recorded
from tests.support.checkpoints import embedding, write_json, write_target
from tests.support.drafts import DraftSpec
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.correction import Correction, correction_of, rotation_of
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.rebuilding import rebuild
from vllm_eagle3_quarot.settings import Settings

HIDDEN = 192
RANDOM = recorded.compressed_tensors(R1=recorded.r1(type="random-hadamard"))
BLOCKS = recorded.compressed_tensors(R1=recorded.r1(head_dim=64))


def rotation_by(folder: Path, quantization: dict[str, Any]) -> Rotation:
    """The rotation that such a record stands for."""
    write_json(folder / "config.json", {"quantization_config": quantization})
    found = TargetFacts.from_folder(folder).recorded_rotations
    assert found is not None
    assert found.residual is not None
    return rebuild(found.residual, HIDDEN, folder)


def target(folder: Path, quantization: dict[str, Any], *, q: torch.Tensor | None = None) -> Path:
    """A target that is rotated as its record says, or by ``q``."""
    matrix = rotation_by(folder / "record", quantization).dense() if q is None else q
    return recorded.record(write_target(folder / "target", matrix), quantization)


def corrected(
    folder: Path, quantized: Path, draft: DraftSpec | None = None, **settings: Any
) -> Correction | None:
    written = (draft or DraftSpec(hidden=HIDDEN)).write(
        folder / "draft", embedding(96, HIDDEN) if draft is None else None
    )
    return correction_of(quantized, str(written), Settings(**settings))


@pytest.mark.parametrize("quantization", [BLOCKS, RANDOM], ids=["blocks", "random"])
def test_a_recorded_rotation_is_undone(tmp_path: Path, quantization: dict[str, Any]) -> None:
    found = corrected(tmp_path, target(tmp_path, quantization))
    assert found is not None
    assert found.embedding == "shared"  # the draft's copy equals the target's, un-rotated
    assert "quantization_config.transform_config.config_groups.R1" in found.summary()


def test_quark_r1_is_undone(tmp_path: Path) -> None:
    found = corrected(tmp_path, target(tmp_path, recorded.quark(rotation_size=64)))
    assert found is not None
    assert found.rotation.fingerprint == rotation_by(tmp_path / "r", BLOCKS).fingerprint


@pytest.mark.parametrize(
    "quantization",
    [
        recorded.compressed_tensors(R2=recorded.r2(), R4=recorded.r4()),
        recorded.compressed_tensors(**recorded.quip()),
        recorded.quark(online_r1_rotation=True),
    ],
    ids=["R2 and R4", "QuIP", "online R1"],
)
def test_rotations_inside_layers_need_nothing(
    tmp_path: Path, quantization: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where the norms were folded, which without the record would look rotated."""
    folder = write_target(tmp_path / "t", None, hidden=HIDDEN, norm=torch.ones(HIDDEN))
    with pytest.raises(RotationError, match="brings no rotation file"):
        rotation_of(TargetFacts.from_folder(folder), Settings())
    recorded.record(folder, quantization)
    with caplog.at_level(logging.DEBUG, logger="vllm.eagle3_quarot"):
        assert correction_of(folder, "no draft", Settings()) is None
    assert [line.levelname for line in caplog.records] == ["DEBUG"]
    assert "stay inside layers" in caplog.text


@pytest.mark.parametrize(
    ("quantization", "reason"),
    [
        (recorded.compressed_tensors(R1=recorded.r1(type="random-matrix")), "not orthogonal"),
        (recorded.compressed_tensors(R1=recorded.r1()), "no power of two"),
        (recorded.quark(random_r1=True), "seed is not recorded"),
        (recorded.quark(), "no power of two"),
    ],
    ids=["random-matrix", "R1 of 192", "Quark random", "Quark of 192"],
)
def test_what_cannot_be_rebuilt_is_refused(
    tmp_path: Path, quantization: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = recorded.record(write_target(tmp_path / "t", torch.eye(HIDDEN)), quantization)
    with pytest.raises(RotationError, match=reason):
        correction_of(folder, "no draft", Settings())
    assert correction_of(folder, "no draft", Settings(strict=False)) is None
    assert reason in caplog.text


def test_the_rotation_setting_supplies_what_the_record_leaves_out(tmp_path: Path) -> None:
    from tests.support.checkpoints import write_sidecar
    from tests.support.rotations import dense_rotation

    q = dense_rotation(HIDDEN)
    folder = target(tmp_path, recorded.quark(trainable=True), q=q)
    supplied = write_sidecar(tmp_path / "elsewhere", q)
    found = corrected(tmp_path, folder, rotation=str(supplied))
    assert found is not None
    assert torch.equal(found.rotation.dense(), q)


def test_centred_embedding_is_not_taken_for_the_drafts(tmp_path: Path) -> None:
    """llm-compressor subtracts every row's mean, which no rotation brings back.

    The draft's own table is what it was trained with, so it is kept.
    """
    q = rotation_by(tmp_path / "record", RANDOM).dense()
    table = embedding(96, HIDDEN) + 0.1
    written = DraftSpec(hidden=HIDDEN).write(tmp_path / "draft", table)
    folder = recorded.record(write_target(tmp_path / "t", q), RANDOM)
    centred = (table - table.mean(1, keepdim=True)) @ q
    _replace_table(folder, centred)
    found = correction_of(folder, str(written), Settings())
    assert found is not None
    assert found.embedding == "own"


def test_an_assumed_seed_needs_a_witness(tmp_path: Path) -> None:
    folder = target(tmp_path, RANDOM)
    draft = DraftSpec(hidden=HIDDEN, own_embedding=False)
    with pytest.raises(UnsupportedPairError, match="original_model") as caught:
        corrected(tmp_path, folder, draft)
    assert "without seeding" in str(caught.value)
    original = write_target(tmp_path / "original", None, hidden=HIDDEN)
    found = corrected(tmp_path, folder, draft, original_model=str(original))
    assert found is not None
    assert found.embedding == "shared"


def test_a_witness_that_contradicts_is_believed(tmp_path: Path) -> None:
    """Signs from another seed: an orthogonal matrix as good as any, and the wrong one."""
    right = rotation_by(tmp_path / "record", RANDOM).dense()
    flipped = torch.ones(HIDDEN).index_fill(0, torch.arange(0, HIDDEN, 3), -1.0)
    folder = target(tmp_path, RANDOM, q=flipped[:, None] * right)
    with pytest.raises(RotationError, match="does not belong to the target"):
        corrected(tmp_path, folder)
    original = write_target(tmp_path / "original", None, hidden=HIDDEN)
    draft = DraftSpec(hidden=HIDDEN, own_embedding=False)
    with pytest.raises(RotationError, match="does not fit the original model"):
        corrected(tmp_path, folder, draft, original_model=str(original))


def test_original_model_without_a_table_is_no_witness(tmp_path: Path) -> None:
    folder = target(tmp_path, RANDOM)
    draft = DraftSpec(hidden=HIDDEN, own_embedding=False)
    other = write_target(tmp_path / "other", None, hidden=64)
    for original in (other, tmp_path / "record"):
        with pytest.raises(UnsupportedPairError, match="confirms it"):
            corrected(tmp_path, folder, draft, original_model=str(original))


def test_a_recorded_rotation_that_follows_needs_no_witness(tmp_path: Path) -> None:
    draft = DraftSpec(hidden=HIDDEN, own_embedding=False)
    assert corrected(tmp_path, target(tmp_path, BLOCKS), draft) is not None


def test_configuration_that_cannot_be_read_stops_no_server(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "t", None, hidden=HIDDEN)
    (folder / "config.json").write_text("{")
    assert rotation_of(TargetFacts.from_folder(folder), Settings()) is None


def _replace_table(folder: Path, table: torch.Tensor) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"] = table.to(torch.bfloat16)
    save_file(tensors, path)
