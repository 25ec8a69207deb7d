# SPDX-License-Identifier: Apache-2.0
"""The structured product with ``Q`` and ``Qᵀ`` in plain torch: the reference for every kernel.

With a block of ``b = k * m`` channels, repeated along the hidden size::

    Q = I ⊗ [ diag(s) · (F ⊗ Hd_m) ]

``s`` ``[b]`` holds the signs times the normalisation, ``F`` ``[k, k]`` is a small matrix and
``Hd_m`` the natural-order (Sylvester) Hadamard matrix of ±1. A row ``x`` of one block, seen as
``[k, m]``::

    x Q  : y = x * s;   y = y Hd_m;   out = Fᵀ y
    x Qᵀ : y = x Hd_m;  y = F y;      out = y * s

(``Hd_m`` is symmetric.) A dense ``Q`` is the same formula with ``m = 1``, ``s = 1``, ``F = Q``.
Arithmetic is fp32 (fp64 for fp64 input) with one rounding at the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

#: Hd_m is applied as products with Hadamard matrices of at most this order: few enough operations
#: to stay close to the butterfly's m·log2(m), large enough to run as matrix products.
LARGEST_RADIX = 64


class Plan(NamedTuple):
    """``Q`` as tensors on one device, in the form that the operators take.

    Attributes:
        signs: ``s`` fp32 ``[b]``, signs times normalisation.
        factor: ``F`` fp32 ``[k, k]``.
        power: ``m``, a power of two with ``k * m == b``.
    """

    signs: torch.Tensor
    factor: torch.Tensor
    power: int


def rotate(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Return ``x Q``, block by block, for ``x`` ``[..., n·b]`` of any float dtype."""
    y = _blocks(x, plan)
    y = y * plan.signs.to(y.dtype)
    y = _hadamard_last_axis(y, plan.power)
    y = _factor_first_axis(y, plan.factor.T, plan.power)
    return y.to(x.dtype).reshape(x.shape)


def unrotate(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Return ``x Qᵀ``, block by block, for ``x`` ``[..., n·b]`` of any float dtype."""
    y = _blocks(x, plan)
    y = _hadamard_last_axis(y, plan.power)
    y = _factor_first_axis(y, plan.factor, plan.power)
    y = y * plan.signs.to(y.dtype)
    return y.to(x.dtype).reshape(x.shape)


def hadamard(order: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The Sylvester Hadamard matrix ``[order, order]`` of ±1; ``order`` is a power of two."""
    matrix = torch.ones(1, 1, device=device, dtype=dtype)
    while matrix.shape[0] < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)], 0)
    return matrix


_cached_hadamard = lru_cache(maxsize=64)(hadamard)


def _blocks(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.to(dtype).reshape(-1, plan.signs.shape[0])


def _hadamard_last_axis(y: torch.Tensor, power: int) -> torch.Tensor:
    """``y Hd_m`` on every run of ``power`` channels, as ``Hd_r1 ⊗ Hd_r2 ⊗ ...`` axis by axis."""
    shape = y.shape
    inner = power
    while inner > 1:
        radix = min(inner, LARGEST_RADIX)
        inner //= radix
        matrix = _cached_hadamard(radix, y.device, y.dtype)
        # Channels are [outer, radix, inner]; symmetric, so a product from the left serves.
        y = (
            y.reshape(-1, radix) @ matrix
            if inner == 1
            else torch.matmul(matrix, y.reshape(-1, radix, inner))
        )
        y = y.reshape(shape)
    return y


def _factor_first_axis(y: torch.Tensor, factor: torch.Tensor, power: int) -> torch.Tensor:
    """``F y`` with every block of ``y`` ``[n, b]`` seen as ``[k, m]``."""
    order = factor.shape[0]
    if order == 1:
        return y * factor.to(y.dtype).reshape(())
    if power == 1:
        return y @ factor.T.to(y.dtype)
    return torch.matmul(factor.to(y.dtype), y.reshape(-1, order, power)).reshape(y.shape)
