# SPDX-License-Identifier: Apache-2.0
"""Rotations made again from a record equal those of the real library, matrix by matrix.

compressed-tensors is what llm-compressor makes and applies its transforms with, and vLLM depends on
it. Applied to a token embedding that is the identity, a transform leaves ``E' = Q``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vllm_eagle3_quarot.checkpoint.recorded_rotation import Construction, ResidualRotation
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.rebuilding import rebuild

TARGET = Path("target")


def recorded(construction: Construction, block: int | None = None) -> ResidualRotation:
    return ResidualRotation("a tool", "some.key", construction, block)


class _Embedding(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(size, size)
        self.embed_tokens.weight.data = torch.eye(size, dtype=torch.float64)


def of_the_library(kind: str, size: int, block: int | None) -> torch.Tensor:
    """``Q`` fp64 ``[size, size]`` as the library applies it to a token embedding."""
    from compressed_tensors.transform import TransformArgs, TransformFactory, TransformScheme

    place = TransformArgs(targets=["re:.*embed_tokens$"], location="weight_output")
    scheme = TransformScheme(type=kind, head_dim=block, apply=[place])
    model = _Embedding(size)
    TransformFactory.from_scheme(scheme, name="R1").apply_to_model(model, use_tqdm=False)
    return model.embed_tokens.weight.data


@pytest.mark.parametrize(
    ("kind", "size", "block"),
    [
        ("hadamard", 64, None),
        ("hadamard", 1024, None),
        ("hadamard", 192, 64),
        ("random-hadamard", 64, None),
        ("random-hadamard", 512, None),
        ("random-hadamard", 192, None),  # a table of 192
        ("random-hadamard", 640, None),  # 160 x 4
        ("random-hadamard", 896, None),  # 224 x 4
        ("random-hadamard", 192, 32),
        ("random-hadamard", 480, 160),
    ],
)
def test_equals_the_librarys_own_matrix(kind: Construction, size: int, block: int | None) -> None:
    expected = of_the_library(kind, size, block)
    rotation = rebuild(recorded(kind, block), size, TARGET)
    # One rounding of 1/√b to fp32, which ours has and the library's fp64 product has not.
    assert torch.allclose(rotation.dense().double(), expected, rtol=2**-23, atol=0)
    assert (kind == "hadamard") == torch.equal(expected, expected.T)
    assert "some.key" in rotation.source
    assert (rotation.assumption is not None) == (kind == "random-hadamard")


@pytest.mark.parametrize(("size", "block"), [(192, None), (640, None), (192, 32)])
def test_factors_are_those_found_in_the_dense_matrix(size: int, block: int | None) -> None:
    """The fast form is the same whether Q was read or rebuilt."""
    rotation = rebuild(recorded("random-hadamard", block), size, TARGET)
    read = Rotation.from_dense(rotation.dense())
    assert rotation.structure is not None
    assert read.structure is not None
    assert rotation.structure.power == read.structure.power
    assert torch.equal(rotation.structure.factor, read.structure.factor)
    assert torch.equal(rotation.structure.signs, read.structure.signs)
    assert rotation.fingerprint == read.fingerprint
    x = torch.randn(3, size)
    assert torch.allclose(rotation.unrotate(x), x @ rotation.dense().T, atol=1e-5)


def test_random_matrix_of_the_library_is_not_orthogonal() -> None:
    """Why that type is refused, whatever one knows about its seed."""
    q = of_the_library("random-matrix", 64, None)
    assert float((q @ q.T - torch.eye(64)).abs().max()) > 1
    with pytest.raises(RotationError, match="not orthogonal"):
        Rotation.from_dense(q)


@pytest.mark.parametrize(
    ("residual", "size", "reason"),
    [
        (recorded("hadamard"), 192, "order 192, no power of two"),
        (recorded("hadamard", 128), 192, "do not fill"),
        (recorded("random-hadamard"), 2 * 257, "order 514"),
        (ResidualRotation("a tool", "some.key", None, obstacle="by magic"), 64, "by magic"),
        (
            ResidualRotation("a tool", "some.key", None, obstacle="badly", is_orthogonal=False),
            64,
            "No Eagle3 draft.*quantise again",
        ),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_with_the_remedy(
    residual: ResidualRotation, size: int, reason: str
) -> None:
    with pytest.raises(RotationError, match=reason) as caught:
        rebuild(residual, size, TARGET)
    assert "target" in str(caught.value)
    assert "some.key" in str(caught.value)
    if residual.is_orthogonal:
        assert '"rotation"' in str(caught.value)


def test_table_package_that_is_missing_or_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_eagle3_quarot.rotation import rebuilding

    monkeypatch.setattr(rebuilding, "TABLE_PACKAGE", "no_such_package")
    with pytest.raises(RotationError, match="not installed"):
        rebuild(recorded("random-hadamard"), 64, TARGET)
    monkeypatch.undo()
    broken = tmp_path / "tables.safetensors"
    broken.write_bytes(b"nothing")
    monkeypatch.setattr(rebuilding, "TABLE_FILE", str(broken))
    with pytest.raises(RotationError, match=r"tables\.safetensors, which cannot be read"):
        rebuild(recorded("random-hadamard"), 64, TARGET)
