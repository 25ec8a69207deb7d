# SPDX-License-Identifier: Apache-2.0
"""Any orthogonal ``Q`` from tables before and after: the orthogonal Procrustes problem.

The ``Q`` nearest to all pairs is the orthogonal polar factor of ``M = Σ Eᵀ E'``, each pair scaled
to the same mean length (Schönemann 1966). The factor is found by Newton's iteration with Higham's
scaling (Higham 1986): ``X := (μ X + (μ X)^{-T}) / 2`` from ``X = M``, quadratic, about nine steps,
each one inversion, at a fraction of the cost of a singular value decomposition.

A ``Q`` whose entries come out as zero or one magnitude is snapped to it, which makes the result
exact where the truth is a Hadamard form of an unknown kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.recovery.tables import ROWS_AT_ONCE, TablePair
from vllm_eagle3_quarot.rotation.rotation import Rotation

#: Rows per table, in multiples of H: beyond, the answer hardly changes.
ROWS_PER_CHANNEL = 16

#: With fewer rows than channels any table can be mapped to any other.
LEAST_ROWS_PER_CHANNEL = 2

MAX_STEPS = 20
#: Relative change of a step; the next would square it.
CONVERGED = 1e-9

#: Called with a share of the whole work that is done.
Progress = Callable[[float], None]


def fit_orthogonal(pairs: Sequence[TablePair], progress: Progress) -> torch.Tensor | None:
    """Return the ``Q`` fp64 ``[H, H]`` nearest to all ``pairs``, None if it is undetermined."""
    size = pairs[0].size
    if sum(pair.count for pair in pairs) < LEAST_ROWS_PER_CHANNEL * size:
        return None
    wanted = ROWS_PER_CHANNEL * size
    cross = torch.zeros(size, size, dtype=torch.float64)
    runs = sum(max(1, min(wanted, pair.count) // ROWS_AT_ONCE) for pair in pairs)
    for pair in pairs:
        part = torch.zeros_like(cross)
        lengths = 0.0
        for before, after in pair.ranges(wanted):
            part += (before.T @ after).double()
            lengths += float(before.norm()) * float(after.norm())
            progress(0.5 / runs)
        cross += part / max(lengths, 1e-30)
    return polar_factor(cross, progress)


def polar_factor(matrix: torch.Tensor, progress: Progress) -> torch.Tensor | None:
    """Return the orthogonal polar factor of ``matrix`` fp64, None when it is singular."""
    x: torch.Tensor = matrix / matrix.norm().clamp_min(1e-300)
    for _ in range(MAX_STEPS):
        inverse, info = torch.linalg.inv_ex(x)
        if int(info) or not bool(torch.isfinite(inverse).all()):
            return None
        scale = (_size(inverse) / _size(x)) ** 0.5
        following = (x * scale + inverse.T / scale) / 2
        change = float((following - x).norm() / following.norm())
        x = following
        progress(0.5 / MAX_STEPS)
        if change < CONVERGED:
            break
    return x


def snapped(q: torch.Tensor) -> torch.Tensor | None:
    """Return ``q`` with every entry moved to ``0`` or ``±c``, fp32; None when that is no rotation.

    ``c = fp32(1/√b)`` for the number ``b`` of entries per row that are not zero.
    """
    size = q.shape[0]
    threshold = q.abs().amax(1, keepdim=True) / 2
    counts = torch.count_nonzero(q.abs() > threshold, dim=1)
    block = int(counts[0])
    if not bool((counts == block).all()):
        return None
    scale = torch.tensor(1.0) / torch.sqrt(torch.tensor(float(block)))
    result = torch.where(q.abs() > threshold, torch.sign(q), 0.0).float() * scale
    # A dense matrix moves by most of its length, a noisy Hadamard matrix by little.
    if float((result - q).norm()) > 0.3 * size**0.5:
        return None
    try:
        Rotation.from_dense(result)
    except RotationError:
        return None
    return result


def _size(matrix: torch.Tensor) -> float:
    """Geometric mean of the 1-norm and the infinity norm, an estimate of the 2-norm."""
    magnitudes = matrix.abs()
    product = float(magnitudes.sum(0).max()) * float(magnitudes.sum(1).max())
    return math.sqrt(product)
