# SPDX-License-Identifier: Apache-2.0
"""Rotations made from a seed against what the real tool made."""

from __future__ import annotations

import pytest
import torch

from tests.support.rotations import REAL_FINGERPRINTS, mersenne_signs, real_rotation
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.msmodelslim import (
    factor_order,
    msmodelslim_rotation,
    table_factor,
    twister_signs,
)


@pytest.mark.parametrize(
    ("size", "block"), [key for key in REAL_FINGERPRINTS if key[0] <= 3072 or key[1] > 0]
)
def test_fingerprints_of_the_real_tool(size: int, block: int) -> None:
    rotation = msmodelslim_rotation(size, block if block > 0 else None)
    assert rotation.fingerprint == REAL_FINGERPRINTS[size, block]


@pytest.mark.parametrize("size", [12, 28, 96, 160, 192, 256])
def test_the_same_value_as_a_factorised_matrix(size: int) -> None:
    made = msmodelslim_rotation(size)
    assert torch.equal(made.dense(), real_rotation(size))
    assert made.fingerprint == Rotation.from_dense(real_rotation(size)).fingerprint
    x = torch.randn(3, size)
    torch.testing.assert_close(made.rotate(x), x @ real_rotation(size), rtol=0, atol=1e-5)


def test_every_table_is_a_hadamard_matrix() -> None:
    for order in (12, 20, 28, 36, 40, 52, 60, 76, 108, 136, 140, 156, 160, 172, 200):
        factor = table_factor(order)
        assert torch.equal(factor @ factor.T, order * torch.eye(order))
        assert factor_order(order) == order


def test_seed_42() -> None:
    assert torch.equal(twister_signs(64, 42), mersenne_signs(64, 42))
    assert not torch.equal(twister_signs(64, 42), twister_signs(64, 1234))


@pytest.mark.parametrize(("size", "block"), [(2880, None), (1408, None), (96, 7), (96, 0)])
def test_sizes_without_a_rotation(size: int, block: int | None) -> None:
    with pytest.raises(RotationError, match="channels"):
        msmodelslim_rotation(size, block)
