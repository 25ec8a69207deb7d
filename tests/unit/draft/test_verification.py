# SPDX-License-Identifier: Apache-2.0
"""The draft's own embedding tells a right rotation from a wrong one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from tests.support.checkpoints import embedding, write_draft, write_target
from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.draft.verification import Relation, relation, verify_embedding
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation

ROTATIONS = {
    "hadamard": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "dense": dense_rotation(50),
}


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_relations_are_told_apart(name: str, dtype: torch.dtype) -> None:
    q = ROTATIONS[name]
    rotation = Rotation.from_dense(q)
    own = embedding(64, q.shape[0])
    other = dense_rotation(q.shape[0], seed=77)
    cases = {
        Relation.MATCHES: own @ q,
        Relation.TRANSPOSED: own @ q.T,
        Relation.IDENTICAL: own,
        Relation.OTHER_ROTATION: own @ other,
        Relation.UNRELATED: embedding(64, q.shape[0], seed=99),
    }
    for expected, stored in cases.items():
        assert relation(stored.to(dtype), own.to(dtype), rotation) is expected


def test_fine_tuned_copy_still_confirms() -> None:
    q = ROTATIONS["12 x 16"]
    own = embedding(64, 192)
    tuned = own + 0.3 * embedding(64, 192, seed=8)
    assert relation(own @ q, tuned, Rotation.from_dense(q)) is Relation.MATCHES


def _index(folder: Path) -> TensorIndex:
    return TensorIndex.from_folder(folder)


@pytest.mark.parametrize("nested", [False, True])
def test_right_rotation_passes(tmp_path: Path, nested: bool) -> None:
    """vllm-project/vllm-ascend#8765: the token table is found beside a vision embedding."""
    q = hadamard_rotation(64)
    target = write_target(tmp_path / "t", q, nested=nested)
    draft = write_draft(tmp_path / "d", embedding(96, 64))
    verify_embedding(_index(target), _index(draft), Rotation.from_dense(q))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (hadamard_rotation(64).T.contiguous(), "transpose"),
        (hadamard_rotation(64, seed=1), "does not belong"),
    ],
    ids=["transposed", "stale"],
)
def test_wrong_rotation_is_refused_and_named(
    tmp_path: Path, wrong: torch.Tensor, reason: str
) -> None:
    """msmodelslim#105: a file that does not map the tables must not serve."""
    target = write_target(tmp_path / "t", hadamard_rotation(64))
    draft = write_draft(tmp_path / "d", embedding(96, 64))
    with pytest.raises(RotationError, match=reason):
        verify_embedding(
            _index(target), _index(draft), Rotation.from_dense(wrong, source="q.safetensors")
        )


def test_draft_already_in_the_rotated_basis_is_refused(tmp_path: Path) -> None:
    q = hadamard_rotation(64)
    target = write_target(tmp_path / "t", q)
    draft = write_draft(tmp_path / "d", embedding(96, 64) @ q)
    with pytest.raises(UnsupportedPairError, match="aligned"):
        verify_embedding(_index(target), _index(draft), Rotation.from_dense(q))


def test_random_table_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TorchSpec#38: a trainer exported an unused random table with the draft."""
    q = hadamard_rotation(64)
    target = write_target(tmp_path / "t", q)
    draft = write_draft(tmp_path / "d", torch.randn(96, 64))
    with caplog.at_level(logging.WARNING, logger="vllm.eagle3_quarot"):
        verify_embedding(_index(target), _index(draft), Rotation.from_dense(q))
    assert "could not be verified" in caplog.text


@pytest.mark.parametrize("table", [None, torch.randn(96, 32)], ids=["absent", "other width"])
def test_without_a_witness_nothing_is_claimed(tmp_path: Path, table: torch.Tensor | None) -> None:
    q = hadamard_rotation(64)
    target = write_target(tmp_path / "t", q)
    draft = write_draft(tmp_path / "d", table)
    verify_embedding(_index(target), _index(draft), Rotation.from_dense(q))
