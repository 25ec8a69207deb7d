# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox_style: bool,
) -> None:
    """Rotate query and key in place; the cache holds cosines, then sines, per position."""
    cos, sin = cos_sin_cache[positions.flatten().long()].float().chunk(2, -1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    for states in (query, key):
        heads = states.reshape(positions.numel(), -1, head_size).float()
        if is_neox_style:
            first, second = heads.chunk(2, -1)
        else:
            first, second = heads[..., ::2], heads[..., 1::2]
        turned = (first * cos - second * sin, second * cos + first * sin)
        joined = torch.cat(turned, -1) if is_neox_style else torch.stack(turned, -1).flatten(-2)
        states.copy_(joined.to(states.dtype).reshape(states.shape))


OPERATORS: dict[str, Callable[..., Any]] = {"atb::_npu_rotary_embedding": rotary_embedding}
