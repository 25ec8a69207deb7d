# SPDX-License-Identifier: Apache-2.0
"""The rotation as a value: products, precision, identity, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.rotation import ORTHOGONALITY_TOLERANCE

ROTATIONS: dict[str, Callable[[], torch.Tensor]] = {
    "power of two": lambda: hadamard_rotation(128),
    "12 x 16": lambda: real_rotation(192),
    "28 x 8": lambda: real_rotation(224),
    "160 x 2": lambda: real_rotation(320),
    "blocks of 32": lambda: real_rotation(96, 32),
    "dense": lambda: dense_rotation(100),
    "dense, odd": lambda: dense_rotation(57),
}

#: Error of a result against fp64, in units of its dtype's rounding step, for inputs of unit scale:
#: half a step for the one rounding, and what fp32 sums over up to 320 terms add (visible in fp32
#: only).
STEPS = {torch.float32: 16.0, torch.bfloat16: 0.51, torch.float16: 0.52}


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("dtype", STEPS, ids=str)
@pytest.mark.parametrize("lead", [(), (0,), (5,), (2, 3)], ids=str)
def test_products_are_right_to_the_last_rounding(
    name: str, dtype: torch.dtype, lead: tuple[int, ...]
) -> None:
    q = ROTATIONS[name]()
    rotation = Rotation.from_dense(q)
    x = torch.randn(*lead, q.shape[0], generator=torch.Generator().manual_seed(1)).to(dtype)
    for result, exact in (
        (rotation.rotate(x), x.double() @ q.double()),
        (rotation.unrotate(x), x.double() @ q.double().T),
    ):
        assert result.dtype == dtype
        assert result.shape == x.shape
        step = torch.finfo(dtype).eps * exact.abs().clamp_min(1.0)
        assert bool(((result.double() - exact).abs() <= STEPS[dtype] * step).all())


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(ROTATIONS)), rows=st.integers(1, 4), seed=st.integers(0, 99))
def test_unrotate_undoes_rotate(name: str, rows: int, seed: int) -> None:
    rotation = Rotation.from_dense(ROTATIONS[name]())
    x = torch.randn(rows, rotation.size, generator=torch.Generator().manual_seed(seed))
    # Two fp32 products of at most 320 terms: a few rounding steps of the row's length.
    assert torch.allclose(rotation.unrotate(rotation.rotate(x)), x, atol=1e-5)
    assert torch.allclose(rotation.rotate(rotation.unrotate(x)), x, atol=1e-5)


def test_rotate_and_unrotate_differ() -> None:
    """Guards the tests themselves: with a symmetric Q the two would agree."""
    for make in ROTATIONS.values():
        rotation = Rotation.from_dense(make())
        x = torch.ones(1, rotation.size)
        assert not torch.allclose(rotation.rotate(x), rotation.unrotate(x), atol=1e-2)


def test_arguments_stay_as_they_are() -> None:
    q = dense_rotation(40)
    kept = q.clone()
    rotation = Rotation.from_dense(q)
    x = torch.randn(3, 40)
    before = x.clone()
    rotation.unrotate(x)
    q.zero_()
    assert torch.equal(x, before)
    assert torch.equal(rotation.dense(), kept)


def test_fingerprint_is_the_hash_of_q() -> None:
    import hashlib

    for make in ROTATIONS.values():
        q = make()
        expected = hashlib.sha256(q.numpy().tobytes()).hexdigest()
        assert Rotation.from_dense(q).fingerprint == expected
    transposed = Rotation.from_dense(hadamard_rotation(64).T.contiguous()).fingerprint
    assert transposed != Rotation.from_dense(hadamard_rotation(64)).fingerprint


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda q: q * 1.01, "not orthogonal"),
        (lambda q: q + 1e-2, "not orthogonal"),
        (lambda q: torch.cat([q[:-1], q[:1]]), "not orthogonal"),
        (lambda q: q * 0, "not orthogonal"),
        (lambda q: q.index_fill(0, torch.tensor([3]), float("nan")), "NaN"),
        (lambda q: q.index_fill(1, torch.tensor([3]), float("inf")), "NaN or infinite"),
        (lambda q: q[:-1], "square"),
        (lambda q: q[0], "square"),
        (lambda q: q[0, 0], "square"),
        (lambda q: q[:0, :0], "square"),
        (lambda q: q.bfloat16(), "bfloat16"),
        (lambda q: q.to(torch.int32), "int32"),
    ],
)
@pytest.mark.parametrize("name", ["power of two", "blocks of 32", "12 x 16", "dense"])
def test_what_is_not_a_rotation_is_refused(
    name: str, damage: Callable[[torch.Tensor], torch.Tensor], reason: str
) -> None:
    with pytest.raises(RotationError, match=reason):
        Rotation.from_dense(damage(ROTATIONS[name]()), source="q.safetensors")


def test_one_flipped_sign_in_a_large_hadamard_is_refused() -> None:
    """The smallest damage that a structured file can have: 2/H per entry of Q Qᵀ."""
    q = hadamard_rotation(1024)
    q[11, 13] *= -1
    assert ORTHOGONALITY_TOLERANCE < 2 / 1024
    with pytest.raises(RotationError, match="not orthogonal"):
        Rotation.from_dense(q)


def test_wrong_width_is_refused_with_both_numbers() -> None:
    rotation = Rotation.from_dense(hadamard_rotation(64))
    with pytest.raises(RotationError, match=r"\(2, 63\).*64"):
        rotation.unrotate(torch.zeros(2, 63))
    with pytest.raises(RotationError, match="int64"):
        rotation.rotate(torch.zeros(2, 64, dtype=torch.int64))


@pytest.mark.parametrize("name", ROTATIONS)
def test_defaults_of_an_engine_that_builds_a_model(name: str) -> None:
    """Its accelerator is the default device then (here one that holds no values), bf16 the dtype.

    On vllm-ascend the rotation was built half on the host and half on the device, and refused.
    """
    q = ROTATIONS[name]()
    expected = Rotation.from_dense(q, source="test")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            made = Rotation.from_dense(q, source="test")
            plan = made.plan
            fingerprint = made.fingerprint
    finally:
        torch.set_default_dtype(before)
    assert fingerprint == expected.fingerprint
    assert plan.power == expected.plan.power
    for tensor, wanted in zip(plan[:2], expected.plan[:2], strict=True):
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, wanted)
