# SPDX-License-Identifier: Apache-2.0
"""A (block-)Hadamard ``Q`` from a few rows: every sign is a vote, and no table matrix is needed.

With a block of ``b = k m`` channels, seen as ``[k, m]``, and ``Q = I ⊗ [diag(s) (F ⊗ Hd_m)] c``::

    z := y Hd_m,  y = x Q      gives      z[:, j] √(k/m) = (x[:, j] s[:, j]) F     for every j < m

so each of the ``m`` inner positions is a small linear system for ``diag(s[:, j]) F`` ``[k, k]``,
whose entries must be ±1. ``F`` is the same for all ``j``; ``s`` follows from the signs of its rows.
With ``F`` known, ``s`` is voted for once more: ``(E' (F ⊗ Hd_m)ᵀ)[:, i] ∝ E[:, i] s_i``.
A larger ``k`` than necessary does no harm, since ``F ⊗ Hd_m = (F ⊗ Hd_2) ⊗ Hd_{m/2}``.

The block is found first: a block-diagonal ``Q`` keeps the length of every block of every row.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.recovery.fit import explains, residual
from vllm_eagle3_quarot.rotation.factorisation import Structure, factorise
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.rotation.transform import Plan, unrotate

#: Rows that vote. Four are enough for signs alone; a system of order k needs several times k.
ROWS = 4096

SMALLEST_BLOCK = 8
LARGEST_FACTOR = 512

#: Median relative difference of block lengths at which blocks count as kept: rounding to bf16 and
#: a witness trained a little further stay below; halves of an 8192-channel rotation differ by 1e-2.
SAME_LENGTH = 5e-3

#: Mean distance of the entries from ±1 at which a system counts as solved: noise of a trained
#: witness stays below 0.3, a wrong order leaves entries near zero, at a distance near 1.
SOLVED = 0.35

#: Inner positions looked at before a whole order is tried.
TRIED_POSITIONS = 4


def vote(before: torch.Tensor, after: torch.Tensor) -> Rotation | None:
    """Return the (block-)Hadamard rotation that explains rows ``[n, H]`` fp32, None without one."""
    for block in _kept_blocks(before, after):
        for order in _factor_orders(block):
            structure = _structure(before, after, block, order)
            if structure is None:
                continue
            rotation = _canonical(structure, before.shape[1])
            if rotation is not None and explains(rotation, residual(rotation, before, after)):
                return rotation
    return None


def _kept_blocks(before: torch.Tensor, after: torch.Tensor) -> Iterator[int]:
    size = before.shape[1]
    for block in range(min(SMALLEST_BLOCK, size), size + 1):
        if size % block:
            continue
        lengths = [rows.reshape(len(rows), -1, block).norm(dim=2) for rows in (before, after)]
        difference = (lengths[0] - lengths[1]).abs() / lengths[1].clamp_min(1e-30)
        if block == size or float(difference.median()) < SAME_LENGTH:
            yield block


def _factor_orders(block: int) -> Iterator[int]:
    odd = block // (block & -block)
    if odd == 1:
        yield 1
    order = odd * 4
    while order <= min(block, LARGEST_FACTOR):
        yield order
        order *= 2


def _structure(
    before: torch.Tensor, after: torch.Tensor, block: int, order: int
) -> Structure | None:
    power = block // order
    x = before.reshape(-1, order, power)
    identity = Plan(torch.ones(block), torch.eye(order), power)
    if order == 1:
        factor = torch.ones(1, 1)
    else:
        if len(x) < 2 * order:
            return None
        z = unrotate(after.reshape(-1, block), identity).reshape(-1, order, power)
        z *= (order / power) ** 0.5
        tried = _solved(x[..., :TRIED_POSITIONS], z[..., :TRIED_POSITIONS])
        if tried is None or float((tried.abs() - 1).abs().mean()) > SOLVED:
            return None
        systems = _solved(x, z)
        if systems is None:
            return None
        factor = _common_factor(systems)
    signs = _voted_signs(before, after, factor, power)
    scale = torch.tensor(1.0) / torch.sqrt(torch.tensor(float(block)))
    return Structure(signs, factor, power, float(scale))


def _solved(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor | None:
    """``diag(s[:, j]) F`` for every inner position: ``[m, k, k]`` from ``[n, k, m]``, fp64."""
    inputs, outputs = (rows.permute(2, 0, 1).double() for rows in (x, z))
    gram = inputs.transpose(1, 2) @ inputs
    trace = gram.diagonal(dim1=1, dim2=2).mean(1)
    ridge = 1e-12 * trace[:, None, None] * torch.eye(gram.shape[1], dtype=gram.dtype)
    solution, info = torch.linalg.solve_ex(gram + ridge, inputs.transpose(1, 2) @ outputs)
    usable = not bool(info.any()) and bool(torch.isfinite(solution).all())
    return solution if usable else None


def _common_factor(systems: torch.Tensor) -> torch.Tensor:
    """``F`` from ``diag(s[:, j]) F`` of all ``j``, up to the signs of its rows."""
    weights = systems.clamp(-2, 2)
    signs = torch.sign(weights[:, :, :1])
    for _ in range(3):
        factor = torch.sign((signs * weights).sum(0))
        signs = torch.sign((weights * factor).sum(2, keepdim=True))
    return torch.where(factor < 0, -1.0, 1.0).float()


def _voted_signs(
    before: torch.Tensor, after: torch.Tensor, factor: torch.Tensor, power: int
) -> torch.Tensor:
    block = factor.shape[0] * power
    unsigned = unrotate(after.reshape(-1, block), Plan(torch.ones(block), factor, power))
    votes = (unsigned * before.reshape(-1, block)).sum(0)
    return torch.where(votes < 0, -1.0, 1.0)


def _canonical(structure: Structure, size: int) -> Rotation | None:
    """The rotation with its smallest factor; None when the voted matrix is not orthogonal."""
    inner = factorise(structure.factor)
    assert inner is not None  # any matrix of ±1 has at least the trivial structure
    signs = structure.signs * inner.signs.repeat_interleave(structure.power)
    power = structure.power * inner.power
    smallest = Structure(signs, inner.factor, power, structure.scale)
    try:
        return Rotation.from_structure(smallest, size, source="signs voted for by table rows")
    except RotationError:
        return None
