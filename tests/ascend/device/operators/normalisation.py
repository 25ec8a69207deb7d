# SPDX-License-Identifier: Apache-2.0
"""RMS norms and the gated activation, as torch_npu's documentation defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Norm = tuple[torch.Tensor, torch.Tensor]
AddedNorm = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> Norm:
    """``x / rms(x) * gamma`` with fp32 arithmetic, and the reciprocal of the rms."""
    wide = x.float()
    reciprocal = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * reciprocal * gamma.float()).to(x.dtype), reciprocal


def add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> AddedNorm:
    """The norm of a sum; the sum itself comes last."""
    total = x1 + x2
    normalised, reciprocal = rms_norm(total, gamma, epsilon)
    return normalised, reciprocal, total


def add_rms_norm_bias(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
) -> AddedNorm:
    """:func:`add_rms_norm` with a bias behind the norm."""
    normalised, reciprocal, total = add_rms_norm(x1, x2, gamma, epsilon)
    return (normalised if beta is None else normalised + beta), reciprocal, total


def swiglu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """``silu(a) * b`` of the two halves of ``x``."""
    gate, up = x.chunk(2, dim)
    return torch.nn.functional.silu(gate) * up


OPERATORS: dict[str, Callable[..., Any]] = {
    "npu::npu_rms_norm": rms_norm,
    "npu::npu_add_rms_norm": add_rms_norm,
    "npu::npu_swiglu": swiglu,
    "_C_ascend::npu_add_rms_norm_bias": add_rms_norm_bias,
}
