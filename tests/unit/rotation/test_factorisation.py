# SPDX-License-Identifier: Apache-2.0
"""A stored Q is taken apart without tables, and multiplies out to itself bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rotations import (
    REAL_FINGERPRINTS,
    dense_rotation,
    hadamard_rotation,
    mersenne_signs,
    real_rotation,
    sylvester,
)
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.factorisation import factorise

#: Expected (k, m) of the block: the largest table order k with a power-of-two rest.
REAL_SHAPES = {
    (2048, -1): (1, 2048),
    (2560, -1): (160, 16),
    (3072, -1): (12, 256),
    (3584, -1): (28, 128),
    (4096, -1): (1, 4096),
    (5120, -1): (160, 32),
    (6144, -1): (12, 512),
    (7168, -1): (28, 256),
    (2880, 32): (1, 32),
    (5120, 32): (1, 32),
}


@pytest.mark.parametrize(("size", "block"), REAL_SHAPES, ids=lambda value: str(value))
def test_real_sizes_factorise_bit_for_bit(size: int, block: int) -> None:
    """The matrices are those of the real tool (pinned by hash), at the sizes of real models."""
    q = real_rotation(size, block)
    rotation = Rotation.from_dense(q)
    assert rotation.fingerprint == REAL_FINGERPRINTS[size, block]
    assert rotation.kind == ("hadamard" if block < 0 else "block-hadamard")
    assert rotation.structure is not None
    assert (rotation.structure.factor.shape[0], rotation.structure.power) == REAL_SHAPES[
        size, block
    ]
    assert torch.equal(rotation.dense(), q)


@pytest.mark.parametrize("size", [8, 96, 250])
def test_dense_rotation_stays_dense(size: int) -> None:
    q = dense_rotation(size)
    rotation = Rotation.from_dense(q)
    assert rotation.kind == "dense"
    assert torch.equal(rotation.dense(), q)


def test_shifted_product_has_no_structure() -> None:
    """msModelSlim's shifted mode multiplies block rotations and cyclic shifts: dense for us."""
    r = real_rotation(128, 32)
    shift = torch.roll(torch.eye(128), 16, dims=0)
    q = r @ shift @ r
    rotation = Rotation.from_dense(q)
    assert rotation.kind == "dense"
    assert torch.equal(rotation.dense(), q)


def test_one_wrong_sign_is_not_taken_for_structure() -> None:
    q = hadamard_rotation(64)
    q[5, 7] *= -1
    structure = factorise(q)
    assert structure is None or structure.equals(q)


def test_unequal_blocks_are_not_taken_for_repeats() -> None:
    q = real_rotation(96, 32)
    q[32:64, 32:64] = hadamard_rotation(32, seed=9)
    rotation = Rotation.from_dense(q)
    assert rotation.kind == "dense"
    assert torch.equal(rotation.dense(), q)


def test_an_entry_outside_the_blocks_is_seen() -> None:
    q = real_rotation(96, 32)
    q[40, 2] = q[0, 0]
    assert factorise(q) is None


def test_negative_zeros_do_not_matter() -> None:
    """A block rotation made by a Kronecker product carries -0.0; it is the same rotation."""
    q = real_rotation(96, 32)
    negative = torch.where(q == 0, -0.0, q)
    assert Rotation.from_dense(negative).fingerprint == Rotation.from_dense(q).fingerprint
    assert torch.equal(Rotation.from_dense(negative).dense(), q)


@settings(max_examples=60, deadline=None)
@given(
    log_m=st.integers(0, 6),
    order=st.sampled_from([1, 12, 28]),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_any_randomised_hadamard_is_found(log_m: int, order: int, repeats: int, seed: int) -> None:
    m = 2**log_m
    width = order * m
    base = real_rotation(order)[:, :] * order**0.5 if order > 1 else torch.ones(1, 1)
    block = torch.kron(base.sign(), sylvester(m)) * mersenne_signs(width, seed)[:, None]
    q = torch.block_diag(*[block / width**0.5] * repeats) + 0.0
    rotation = Rotation.from_dense(q)
    assert rotation.structure is not None
    assert torch.equal(rotation.dense(), q)
    assert rotation.structure.power >= m
