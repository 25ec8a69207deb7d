# SPDX-License-Identifier: Apache-2.0
"""Plans of any structure, without making and factorising the dense matrix."""

from __future__ import annotations

from functools import cache

import torch

from tests.support.rotations import dense_rotation, mersenne_signs, real_rotation
from vllm_eagle3_quarot.rotation import Plan, transform


@cache
def table_factor(order: int) -> torch.Tensor:
    """The ±1 factor of msModelSlim's table of this order (1, 12, 28 or 160)."""
    return real_rotation(order).sign() * mersenne_signs(order)[:, None]


def structured_plan(order: int, power: int, seed: int = 0) -> Plan:
    """``diag(s) (F ⊗ Hd_power) / sqrt(b)`` with the table of ``order`` and random signs."""
    block = order * power
    return Plan(mersenne_signs(block, seed) / block**0.5, table_factor(order), power)


def dense_plan(size: int, seed: int = 0) -> Plan:
    """A rotation without structure."""
    return Plan(torch.ones(size), dense_rotation(size, seed), 1)


def real_plan(size: int) -> Plan:
    """The structure that msModelSlim gives a hidden size: the largest table that fits."""
    for order in (160, 28, 12, 1):
        power = size // order
        if size % order == 0 and power & (power - 1) == 0:
            return structured_plan(order, power, seed=1234)
    raise ValueError(f"no table fits {size}")


def exact_unrotate(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """``x Qᵀ`` in fp64. That this formula is the stored matrix's product is tested elsewhere."""
    return transform.unrotate(x.double(), plan)


def exact_rotate(x: torch.Tensor, plan: Plan) -> torch.Tensor:
    """``x Q`` in fp64."""
    return transform.rotate(x.double(), plan)
