# SPDX-License-Identifier: Apache-2.0
"""Operators under ``torch.ops.eagle3_quarot`` and their one-line Python front.

T tokens, A aux hidden states, H the target's hidden size; fp32, bf16 or fp16 with fp32 arithmetic;
T = 0 is allowed. ``rotation`` is best a :class:`Plan` that already lives on the tensors' device: a
:class:`Rotation` is copied there first. Bad arguments raise ValueError with the operator's name.

Importing this package defines the operators and runs them in plain torch. :func:`load_native` adds
the compiled CPU kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vllm_eagle3_quarot.ops.ascend import load_ascend
from vllm_eagle3_quarot.ops.native import Backend, load_native
from vllm_eagle3_quarot.ops.schemas import register_ops
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.rotation.transform import Plan

register_ops()

__all__ = [
    "Backend",
    "Plan",
    "embedding_unrotate",
    "load_ascend",
    "load_native",
    "rotate",
    "unrotate",
    "unrotate_",
    "unrotate_concat",
    "unrotate_norm",
]


def unrotate(x: torch.Tensor, rotation: Rotation | Plan) -> torch.Tensor:
    """Return ``x`` ``[T, A·H]`` with each of its A slices multiplied by ``Qᵀ``."""
    y: torch.Tensor = torch.ops.eagle3_quarot.unrotate(x, *_plan(x, rotation))
    return y


def unrotate_(x: torch.Tensor, rotation: Rotation | Plan) -> torch.Tensor:
    """:func:`unrotate` into ``x`` itself, which is returned."""
    torch.ops.eagle3_quarot.unrotate_(x, *_plan(x, rotation))
    return x


def unrotate_concat(aux: Sequence[torch.Tensor], rotation: Rotation | Plan) -> torch.Tensor:
    """Return the un-rotated concatenation ``[T, A·H]`` of A aux states ``[T, H]``.

    Takes the place of ``torch.cat``: the states are read once, rows may be strided or padded.
    """
    y: torch.Tensor = torch.ops.eagle3_quarot.unrotate_concat(aux, *_plan(aux, rotation))
    return y


def unrotate_norm(
    states: torch.Tensor | Sequence[torch.Tensor],
    rotation: Rotation | Plan,
    gamma: torch.Tensor | Sequence[torch.Tensor],
    eps: float,
) -> torch.Tensor:
    """Return the RMSNorm ``[T, A·H]`` of the un-rotated aux states, rounded as vLLM's RMSNorm does.

    Args:
        states: the concatenation ``[T, A·H]``, or A aux states ``[T, H]``.
        gamma: the norm's scale in natural (un-rotated) order. ``[A·H]`` normalises over the
            concatenation (``norm_before_fc``); ``[A, H]`` or A of ``[H]`` normalise each slice by
            itself (``fc_norm``).
        eps: added to the mean square.
    """
    if isinstance(states, torch.Tensor):
        states = [states]
    if isinstance(gamma, torch.Tensor):
        gamma = [gamma] if gamma.dim() == 1 else gamma.unbind()
    y: torch.Tensor = torch.ops.eagle3_quarot.unrotate_norm(
        states, *_plan(states, rotation), gamma, eps
    )
    return y


def embedding_unrotate(
    ids: torch.Tensor,
    table: torch.Tensor,
    rotation: Rotation | Plan,
    vocab_start: int = 0,
    vocab_end: int | None = None,
) -> torch.Tensor:
    """Return the un-rotated rows ``[T, H]`` of the target's rotated embedding for ``ids`` ``[T]``.

    ``table`` ``[V, H]`` holds the ids from ``vocab_start`` to before ``vocab_end`` (default: all of
    its rows); other ids give zeros, as a vocabulary-parallel embedding needs them. int32 or int64.
    """
    if vocab_end is None:
        vocab_end = vocab_start + table.shape[0]
    y: torch.Tensor = torch.ops.eagle3_quarot.embedding_unrotate(
        ids, table, *_plan(table, rotation), vocab_start, vocab_end
    )
    return y


def rotate(
    x: torch.Tensor, rotation: Rotation | Plan, multiplier: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``(x * multiplier)`` ``[T, A·H]`` with each of its A slices multiplied by ``Q``.

    ``multiplier`` is fp32 ``[H]``. For the shared head's ``(x / g) Q`` it is ``1 / g``, made once:
    a product is what every back end does fast, and in fp32 it costs no accuracy.
    """
    y: torch.Tensor = torch.ops.eagle3_quarot.rotate(x, *_plan(x, rotation), multiplier)
    return y


def _plan(x: torch.Tensor | Sequence[torch.Tensor], rotation: Rotation | Plan) -> Plan:
    if not isinstance(rotation, Rotation):
        return rotation
    if not isinstance(x, torch.Tensor):
        # The operator itself refuses an empty list.
        return rotation.plan_on(x[0].device) if x else rotation.plan
    return rotation.plan_on(x.device)
