# SPDX-License-Identifier: Apache-2.0
"""What every implementation of an operator refuses, with the operator's name and what it got.

Shapes, dtypes and devices only: nothing here waits for a device. The native kernels make the same
checks (``csrc/cpu/checks.h``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
INDEX_DTYPES = (torch.int32, torch.int64)


def check_rotation(op: str, signs: torch.Tensor, factor: torch.Tensor, power: int) -> None:
    """Raise ValueError unless the three are ``[k*m]``, ``[k, k]`` and a power of two ``m``."""
    block = signs.shape[0] if signs.dim() == 1 else 0
    if (
        block == 0
        or factor.dim() != 2
        or factor.shape[0] != factor.shape[1]
        or factor.shape[0] * power != block
        or power & (power - 1)
    ):
        raise ValueError(
            f"eagle3_quarot::{op}: signs {tuple(signs.shape)}, factor {tuple(factor.shape)} and "
            f"power {power} are not [k*m], [k, k] and a power of two m"
        )
    if signs.dtype != torch.float32 or factor.dtype != torch.float32:
        raise ValueError(
            f"eagle3_quarot::{op}: signs are {signs.dtype} and factor is {factor.dtype}; "
            "torch.float32 expected"
        )
    if signs.device != factor.device:
        raise ValueError(
            f"eagle3_quarot::{op}: signs are on {signs.device}, factor on {factor.device}"
        )


def check_channels(op: str, name: str, x: torch.Tensor, signs: torch.Tensor) -> None:
    """Raise ValueError unless ``x`` ``[..., n·b]`` is a float tensor beside ``signs``."""
    if x.dtype not in FLOAT_DTYPES:
        raise ValueError(
            f"eagle3_quarot::{op}: {name} is {x.dtype}; float32, bfloat16 or float16 expected"
        )
    block = signs.shape[0]
    if x.dim() == 0 or x.shape[-1] % block != 0:
        raise ValueError(
            f"eagle3_quarot::{op}: {name} has shape {tuple(x.shape)}; its last axis is no multiple "
            f"of the rotation's block of {block} channels"
        )
    if signs.device != x.device:
        raise ValueError(
            f"eagle3_quarot::{op}: {name} is on {x.device}, the rotation on {signs.device}; use "
            "Rotation.plan_on(device)"
        )


def check_list(op: str, name: str, parts: Sequence[torch.Tensor], signs: torch.Tensor) -> None:
    """Raise ValueError unless ``parts`` can be concatenated along their channels."""
    if not parts:
        raise ValueError(f"eagle3_quarot::{op}: {name} is an empty list")
    first = parts[0]
    for index, part in enumerate(parts):
        check_channels(op, f"{name}[{index}]", part, signs)
        if part.dtype != first.dtype or part.shape[:-1] != first.shape[:-1]:
            raise ValueError(
                f"eagle3_quarot::{op}: {name}[{index}] is {part.dtype} {tuple(part.shape)}, which "
                f"does not go beside {name}[0], {first.dtype} {tuple(first.shape)}"
            )


def check_gammas(op: str, gammas: Sequence[torch.Tensor], width: int, x: torch.Tensor) -> None:
    """Raise ValueError unless the norm scales are float vectors that cover ``width`` channels."""
    shapes = [tuple(gamma.shape) for gamma in gammas]
    if any(len(shape) != 1 or shape[0] == 0 for shape in shapes) or (
        sum(shape[0] for shape in shapes) != width
    ):
        raise ValueError(
            f"eagle3_quarot::{op}: norm scales of shapes {shapes} do not cover {width} channels"
        )
    for gamma in gammas:
        if gamma.dtype not in FLOAT_DTYPES or gamma.device != x.device:
            raise ValueError(
                f"eagle3_quarot::{op}: a norm scale is {gamma.dtype} on {gamma.device}; float32, "
                f"bfloat16 or float16 on {x.device} expected"
            )


def check_embedding(
    op: str, ids: torch.Tensor, table: torch.Tensor, vocab_start: int, vocab_end: int
) -> None:
    """Raise ValueError unless ``ids`` can index the ``[V, H]`` shard of a vocabulary."""
    if ids.dtype not in INDEX_DTYPES or ids.device != table.device:
        raise ValueError(
            f"eagle3_quarot::{op}: ids are {ids.dtype} on {ids.device}; int32 or int64 on "
            f"{table.device} expected"
        )
    if table.dim() != 2:
        raise ValueError(
            f"eagle3_quarot::{op}: table has shape {tuple(table.shape)}; [V, H] expected"
        )
    if not 0 <= vocab_end - vocab_start <= table.shape[0]:
        raise ValueError(
            f"eagle3_quarot::{op}: ids from {vocab_start} to before {vocab_end} do not fit a table "
            f"of {table.shape[0]} rows"
        )


def check_multiplier(op: str, multiplier: torch.Tensor, x: torch.Tensor, block: int) -> None:
    """Raise ValueError unless ``multiplier`` fp32 ``[H]`` fits the hidden states in ``x``."""
    if (
        multiplier.dim() != 1
        or multiplier.shape[0] == 0
        or multiplier.shape[0] % block != 0
        or x.shape[-1] % multiplier.shape[0] != 0
        or multiplier.dtype != torch.float32
        or multiplier.device != x.device
    ):
        raise ValueError(
            f"eagle3_quarot::{op}: multiplier is {multiplier.dtype} {tuple(multiplier.shape)} on "
            f"{multiplier.device}; torch.float32 [H] on {x.device} expected, H a multiple of "
            f"{block} channels and x, {tuple(x.shape)}, a multiple of H wide"
        )
