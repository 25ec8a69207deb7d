# SPDX-License-Identifier: Apache-2.0
"""The algebra of folding ``Q`` into a projection, against the norm and the product in fp64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rotations import ROTATIONS
from vllm_eagle3_quarot.draft.fold import fold_projection, fold_state
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation import Rotation

#: fp64 through norm and product on values of order 1, but for ``Q``, whose fp32 entries make
#: ``Q Qᵀ`` differ from one by up to 1e-6.
FP64_TOLERANCE = 1e-5

EPS = 1e-6


def _normalised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """RMSNorm over the last axis."""
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * scale


def _by_state(x: torch.Tensor, scale: torch.Tensor, size: int) -> torch.Tensor:
    """RMSNorm of every slice of ``size`` channels by itself."""
    slices = x.reshape(x.shape[0], -1, size)
    return _normalised(slices, scale.reshape(-1, size)).reshape(x.shape)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(ROTATIONS)),
    count=st.sampled_from([1, 2, 4, 5]),
    outputs=st.sampled_from([1, 24, 64]),
    norm=st.sampled_from(["none", "one", "per state"]),
    seed=st.integers(0, 2**16),
)
def test_folded_projection_of_rotated_states_is_that_of_the_original_ones(
    name: str, count: int, outputs: int, norm: str, seed: int
) -> None:
    q = ROTATIONS[name]
    size = q.shape[0]
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, count * size, generator=generator, dtype=torch.float64)
    # Scales over three orders of magnitude, with signs.
    exponents = 3 * torch.rand(count * size, generator=generator, dtype=torch.float64) - 2
    scale = 10**exponents * torch.where(exponents.frac() > -0.1, 1.0, -1.0)
    # States of very different sizes, so that one norm over all and one per state differ.
    h = torch.randn(3, count, size, generator=generator, dtype=torch.float64)
    h = (h * 10.0 ** torch.arange(count)[:, None]).reshape(3, -1)
    rotated = (h.reshape(3, count, size) @ q.double()).reshape(h.shape)
    ones = torch.ones_like(scale)
    norms = {
        "none": lambda x, _: x,
        "one": _normalised,
        "per state": lambda x, gamma: _by_state(x, gamma, size),
    }
    expected = norms[norm](h, scale) @ weight.T

    used = None if norm == "none" else scale
    folded = fold_projection(weight, Rotation.from_dense(q), used)
    actual = norms[norm](rotated, ones) @ folded.T
    size_of_terms = (norms[norm](h, scale).abs() @ weight.abs().T).max()
    assert torch.allclose(actual, expected, atol=FP64_TOLERANCE * float(size_of_terms), rtol=0)


def test_direction_matters() -> None:
    """Q is not symmetric: the fold with its transpose is another matrix."""
    q = ROTATIONS["12 x 16"]
    weight = torch.randn(8, 2 * 192, dtype=torch.float64)
    folded = fold_projection(weight, Rotation.from_dense(q))
    transposed = fold_projection(weight, Rotation.from_dense(q.T.contiguous()))
    assert torch.allclose(folded[:, :192], weight[:, :192] @ q.double(), atol=1e-12)
    assert not torch.allclose(folded, transposed, atol=0.1)


@pytest.mark.parametrize("name", ROTATIONS)
def test_mask_state_keeps_its_combination(name: str) -> None:
    q = ROTATIONS[name]
    size = q.shape[0]
    weight = torch.randn(16, 4 * size, dtype=torch.float64)
    mask = torch.randn(1, 4 * size, dtype=torch.float64)
    rotation = Rotation.from_dense(q)
    combined = fold_state(mask, rotation) @ fold_projection(weight, rotation).T
    assert torch.allclose(combined, mask @ weight.T, atol=FP64_TOLERANCE * 4 * size)


@pytest.mark.parametrize(
    ("shape", "scale", "message"),
    [((4, 100), None, "states of 80"), ((), None, "states of 80"), ((4, 160), 80, "80 channels")],
)
def test_widths_that_do_not_fit(shape: tuple[int, ...], scale: int | None, message: str) -> None:
    rotation = Rotation.from_dense(ROTATIONS["dense"])
    with pytest.raises(RotationError, match=message):
        fold_projection(torch.ones(shape), rotation, None if scale is None else torch.ones(scale))
