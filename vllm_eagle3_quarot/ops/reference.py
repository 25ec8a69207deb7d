# SPDX-License-Identifier: Apache-2.0
"""The operators in plain torch: what they mean, and what runs where there is no native kernel.

fp32 arithmetic and one rounding at the end (``unrotate_norm`` rounds where RMSNorm does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from vllm_eagle3_quarot.ops import checks
from vllm_eagle3_quarot.rotation import transform
from vllm_eagle3_quarot.rotation.transform import Plan


def unrotate(
    x: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, power: int
) -> torch.Tensor:
    """``x`` ``[..., n·b]`` times ``Qᵀ``, block by block."""
    checks.check_rotation("unrotate", signs, factor, power)
    checks.check_channels("unrotate", "x", x, signs)
    return transform.unrotate(x, Plan(signs, factor, power)).contiguous()


def unrotate_(x: torch.Tensor, signs: torch.Tensor, factor: torch.Tensor, power: int) -> None:
    """:func:`unrotate` into ``x``."""
    checks.check_rotation("unrotate_", signs, factor, power)
    checks.check_channels("unrotate_", "x", x, signs)
    x.copy_(transform.unrotate(x, Plan(signs, factor, power)))


def unrotate_concat(
    aux: Sequence[torch.Tensor], signs: torch.Tensor, factor: torch.Tensor, power: int
) -> torch.Tensor:
    """The concatenation ``[..., A·H]`` of ``aux`` (A of ``[..., H]``), un-rotated."""
    checks.check_rotation("unrotate_concat", signs, factor, power)
    checks.check_list("unrotate_concat", "aux", aux, signs)
    return transform.unrotate(torch.cat(list(aux), dim=-1), Plan(signs, factor, power)).contiguous()


def unrotate_norm(
    states: Sequence[torch.Tensor],
    signs: torch.Tensor,
    factor: torch.Tensor,
    power: int,
    gammas: Sequence[torch.Tensor],
    eps: float,
) -> torch.Tensor:
    """RMSNorm of the un-rotated concatenation of ``states``.

    ``gammas`` divide the channels into the groups that are normalised by themselves: one ``[A·H]``
    normalises the whole row (``norm_before_fc``), A of ``[H]`` each slice (``fc_norm``).
    """
    checks.check_rotation("unrotate_norm", signs, factor, power)
    checks.check_list("unrotate_norm", "states", states, signs)
    width = sum(part.shape[-1] for part in states)
    checks.check_gammas("unrotate_norm", gammas, width, states[0])
    # Not rounded between rotation and norm: the variance is that of the fp32 values.
    rows = transform.unrotate(torch.cat(list(states), dim=-1).float(), Plan(signs, factor, power))
    groups = rows.split([gamma.shape[0] for gamma in gammas], dim=-1)
    dtype = states[0].dtype
    return torch.cat(
        [_rms_norm(x, gamma, eps).to(dtype) for x, gamma in zip(groups, gammas, strict=True)],
        dim=-1,
    )


def embedding_unrotate(
    ids: torch.Tensor,
    table: torch.Tensor,
    signs: torch.Tensor,
    factor: torch.Tensor,
    power: int,
    vocab_start: int,
    vocab_end: int,
) -> torch.Tensor:
    """Rows ``ids - vocab_start`` of ``table`` ``[V, H]``, un-rotated: ``[..., H]``.

    An id outside ``vocab_start … vocab_end - 1`` gives a row of zeros, which is what the all-reduce
    of a vocabulary-parallel embedding needs.
    """
    checks.check_rotation("embedding_unrotate", signs, factor, power)
    checks.check_channels("embedding_unrotate", "table", table, signs)
    checks.check_embedding("embedding_unrotate", ids, table, vocab_start, vocab_end)
    if vocab_end == vocab_start:
        return table.new_zeros(*ids.shape, table.shape[1])
    outside = (ids < vocab_start) | (ids >= vocab_end)
    rows = table[(ids - vocab_start).masked_fill(outside, 0)]
    rows = transform.unrotate(rows, Plan(signs, factor, power)).contiguous()
    return rows.masked_fill_(outside.unsqueeze(-1), 0)


def rotate(
    x: torch.Tensor,
    signs: torch.Tensor,
    factor: torch.Tensor,
    power: int,
    multiplier: torch.Tensor | None = None,
) -> torch.Tensor:
    """``(x * multiplier) Q``, block by block, for ``x`` ``[..., n·b]``."""
    checks.check_rotation("rotate", signs, factor, power)
    checks.check_channels("rotate", "x", x, signs)
    plan = Plan(signs, factor, power)
    if multiplier is None:
        return transform.rotate(x, plan).contiguous()
    checks.check_multiplier("rotate", multiplier, x, signs.shape[0])
    scaled = x.float().unflatten(-1, (-1, multiplier.shape[0])) * multiplier
    return transform.rotate(scaled, plan).to(x.dtype).reshape(x.shape).contiguous()


def _rms_norm(x: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of fp32 ``x``, rounded where vLLM's ``RMSNorm.forward_native`` rounds."""
    x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)
    return x.to(gamma.dtype) * gamma


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
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
