# SPDX-License-Identifier: Apache-2.0
"""The folded-away scale of the final norm, from each of its sources."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import embedding, write_draft, write_target
from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.final_norm import FinalNorm, find_final_norm
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation

ROTATIONS = {
    "hadamard": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "dense": dense_rotation(50),
}

#: bf16 keeps 8 bits: a value read from it is right to 2^-8; one averaged over rows is better.
BF16 = 2.0**-8


@pytest.fixture(params=ROTATIONS)
def q(request: pytest.FixtureRequest) -> torch.Tensor:
    return ROTATIONS[request.param]


def _scale(size: int) -> torch.Tensor:
    """The scale that tests.support.checkpoints folds into its heads."""
    return torch.linspace(0.5, 1.5, size)


def _find(
    folder: Path, q: torch.Tensor, original: Path | None = None, **tensors: torch.Tensor
) -> FinalNorm:
    draft = write_draft(folder / "draft", None, hidden=q.shape[0])
    _add(draft, **tensors)
    return find_final_norm(
        TargetFacts.from_folder(folder / "target"),
        DraftFacts(draft),
        Rotation.from_dense(q),
        original,
    )


def _add(folder: Path, **tensors: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **{k.replace("__", "."): v for k, v in tensors.items()}}, path)


@pytest.mark.variants(3)
@pytest.mark.parametrize("nested", [False, True])
def test_from_the_original_checkpoint(tmp_path: Path, q: torch.Tensor, nested: bool) -> None:
    write_target(tmp_path / "target", q)
    original = write_target(tmp_path / "original", None, hidden=q.shape[0], nested=nested)
    found = _find(tmp_path, q, original)
    assert torch.allclose(found.scale, _scale(q.shape[0]), rtol=BF16)
    assert str(original) in found.source


@pytest.mark.variants(3)
def test_from_the_draft(tmp_path: Path, q: torch.Tensor) -> None:
    write_target(tmp_path / "target", q)
    found = _find(tmp_path, q, verifier_norm__weight=_scale(q.shape[0]))
    assert torch.equal(found.scale, _scale(q.shape[0]))


@pytest.mark.variants(3)
def test_from_the_rotated_norm_of_the_export(tmp_path: Path, q: torch.Tensor) -> None:
    """vllm-project/vllm-ascend#7139: such exports keep Qᵀ diag(g) Q for heads after the norm."""
    target = write_target(tmp_path / "target", q)
    rot = q.T @ torch.diag(_scale(q.shape[0])) @ q
    _add(target, rot__weight=rot.to(torch.bfloat16))
    found = _find(tmp_path, q)
    # Every entry of rot is rounded to bf16 by itself; the diagonal averages over H² of them.
    assert torch.allclose(found.scale, _scale(q.shape[0]), rtol=2 * BF16)
    assert "rot.weight" in found.source


def test_rotated_norm_of_another_rotation_is_not_believed(tmp_path: Path) -> None:
    q = ROTATIONS["hadamard"]
    target = write_target(tmp_path / "target", q)
    other = dense_rotation(64)
    _add(target, rot__weight=other.T @ torch.diag(_scale(64)) @ other)
    with pytest.raises(UnsupportedPairError, match="original_model"):
        _find(tmp_path, q)


@pytest.mark.variants(3)
def test_from_tied_tables(tmp_path: Path, q: torch.Tensor) -> None:
    """Untied by the quantiser, but made from one table: the ratio of the columns is the scale."""
    size = q.shape[0]
    target = write_target(tmp_path / "target", q)
    table = embedding(96, size)
    tied = (table * _scale(size)) @ q
    _add(target, lm_head__weight=tied.to(torch.bfloat16))
    assert torch.allclose(_find(tmp_path, q).scale, _scale(size), rtol=BF16)


@pytest.mark.variants(3)
def test_without_a_source_the_remedy_is_named(tmp_path: Path, q: torch.Tensor) -> None:
    write_target(tmp_path / "target", q)
    with pytest.raises(UnsupportedPairError, match="original_model"):
        _find(tmp_path, q)


def test_unusable_originals_are_refused(tmp_path: Path) -> None:
    q = ROTATIONS["hadamard"]
    target = write_target(tmp_path / "target", q)
    with pytest.raises(UnsupportedPairError, match="rotated model as well"):
        _find(tmp_path, q, target)
    with pytest.raises(UnsupportedPairError, match="128 channels, the target 64"):
        _find(tmp_path, q, write_target(tmp_path / "large", None, hidden=128))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnsupportedPairError, match=r"no final norm under one of the names"):
        _find(tmp_path, q, empty)


def test_scale_that_cannot_be_divided_by(tmp_path: Path) -> None:
    q = ROTATIONS["hadamard"]
    write_target(tmp_path / "target", q)
    with pytest.raises(UnsupportedPairError, match="zero or non-finite"):
        _find(tmp_path, q, verifier_norm__weight=torch.arange(64.0))


def test_the_scale_outlives_its_file(tmp_path: Path, q: torch.Tensor) -> None:
    """What safetensors reads are views of the file; a copy over it must not reach the server."""
    write_target(tmp_path / "target", q)
    scale = _scale(q.shape[0])
    found = _find(tmp_path, q, verifier_norm__weight=scale)
    path = tmp_path / "draft" / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(bytes(size))
    assert torch.equal(found.scale, scale)
