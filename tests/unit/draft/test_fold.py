# SPDX-License-Identifier: Apache-2.0
"""The algebra of folding a rotation into a projection, against the block diagonal written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rotations import dense_rotation, real_rotation
from vllm_eagle3_quarot.draft.fold import fold_projection, fold_state, unfold_projection
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation import Rotation

#: fp64 arithmetic with entries of order one.
TOLERANCE = 1e-12

ROTATIONS = [real_rotation(96), real_rotation(96, 32), dense_rotation(40), dense_rotation(1)]


@settings(deadline=None)
@given(st.sampled_from(ROTATIONS), st.integers(1, 5), st.integers(1, 7), st.integers(0, 2**31))
def test_fold_is_the_product_with_a_block_diagonal(
    q: torch.Tensor, count: int, rows: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    width = count * q.shape[0]
    weight = torch.randn(rows, width, generator=generator)
    scale = 0.5 + torch.rand(width, generator=generator)
    diagonal = torch.block_diag(*[q.double()] * count)
    rotation = Rotation.from_dense(q)
    folded = fold_projection(weight, rotation, scale)
    expected = weight.double() @ torch.diag(scale.double()) @ diagonal
    torch.testing.assert_close(folded, expected, rtol=0, atol=TOLERANCE)
    state = fold_state(weight, rotation)
    torch.testing.assert_close(state, weight.double() @ diagonal, rtol=0, atol=TOLERANCE)
    # Q is stored in fp32, so Q Qᵀ is one to 1e-6 only.
    back = unfold_projection(folded, rotation, scale)
    torch.testing.assert_close(back, weight.double(), rtol=0, atol=1e-4)


def test_single_precision_where_there_is_no_other() -> None:
    rotation = Rotation.from_dense(real_rotation(96))
    weight = torch.randn(4, 192)
    folded = fold_projection(weight, rotation, arithmetic=torch.float32)
    assert folded.dtype == torch.float32
    torch.testing.assert_close(
        folded.double(), fold_projection(weight, rotation), rtol=0, atol=1e-5
    )


def test_columns_of_a_zero_scale_become_zero() -> None:
    rotation = Rotation.from_dense(real_rotation(96))
    scale = torch.ones(96)
    scale[5] = 0
    back = unfold_projection(fold_projection(torch.randn(3, 96), rotation, scale), rotation, scale)
    assert bool((back[:, 5] == 0).all())
    assert bool(torch.isfinite(back).all())


def test_widths_that_do_not_fit_are_refused() -> None:
    rotation = Rotation.from_dense(real_rotation(96))
    with pytest.raises(RotationError, match="another target"):
        fold_projection(torch.randn(3, 100), rotation)
    with pytest.raises(RotationError, match="95 channels"):
        fold_projection(torch.randn(3, 96), rotation, torch.ones(95))
