# SPDX-License-Identifier: Apache-2.0
"""Fake kernels: the shapes that tracing needs. Outputs are new, contiguous tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from vllm_eagle3_quarot.ops import checks


def unrotate(
    x: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, power: int
) -> torch.Tensor:
    checks.check_rotation("unrotate", signs, factor, power)
    checks.check_channels("unrotate", "x", x, signs)
    return x.new_empty(x.shape)


def unrotate_(x: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, power: int) -> None:
    checks.check_rotation("unrotate_", signs, factor, power)
    checks.check_channels("unrotate_", "x", x, signs)


def unrotate_concat(
    aux: Sequence[torch.Tensor], signs: torch.Tensor, factor: torch.Tensor, power: int
) -> torch.Tensor:
    checks.check_rotation("unrotate_concat", signs, factor, power)
    checks.check_list("unrotate_concat", "aux", aux, signs)
    return aux[0].new_empty(*aux[0].shape[:-1], sum(part.shape[-1] for part in aux))


def unrotate_norm(
    states: Sequence[torch.Tensor],
    signs: torch.Tensor,
    factor: torch.Tensor,
    power: int,
    gammas: Sequence[torch.Tensor],
    eps: float,
) -> torch.Tensor:
    checks.check_rotation("unrotate_norm", signs, factor, power)
    checks.check_list("unrotate_norm", "states", states, signs)
    width = sum(part.shape[-1] for part in states)
    checks.check_gammas("unrotate_norm", gammas, width, states[0])
    return states[0].new_empty(*states[0].shape[:-1], width)


def embedding_unrotate(
    ids: torch.Tensor,
    table: torch.Tensor,
    signs: torch.Tensor,
    factor: torch.Tensor,
    power: int,
    vocab_start: int,
    vocab_end: int,
) -> torch.Tensor:
    checks.check_rotation("embedding_unrotate", signs, factor, power)
    checks.check_channels("embedding_unrotate", "table", table, signs)
    checks.check_embedding("embedding_unrotate", ids, table, vocab_start, vocab_end)
    return table.new_empty(*ids.shape, table.shape[1])


def rotate(
    x: torch.Tensor,
    signs: torch.Tensor,
    factor: torch.Tensor,
    power: int,
    multiplier: torch.Tensor | None = None,
) -> torch.Tensor:
    checks.check_rotation("rotate", signs, factor, power)
    checks.check_channels("rotate", "x", x, signs)
    if multiplier is not None:
        checks.check_multiplier("rotate", multiplier, x, signs.shape[0])
    return x.new_empty(x.shape)


FAKES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        unrotate,
        unrotate_,
        unrotate_concat,
        unrotate_norm,
        embedding_unrotate,
        rotate,
    )
}
