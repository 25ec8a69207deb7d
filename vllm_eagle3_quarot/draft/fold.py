# SPDX-License-Identifier: Apache-2.0
"""The exact fold of ``Q`` into what reads aux hidden states: pure algebra on tensors.

A slices of H channels pass through ``B = I_A ⊗ Q``, which is never built: ``h' = h B``. Without a
norm in front of it, the projection ``W`` becomes ``W' = W B``::

    h Wᵀ = h' Bᵀ Wᵀ = h' (W B)ᵀ

An RMSNorm of scale ``c`` in front of it gives ``h diag(c) / r(h)`` with ``r(h)² = mean(h²) + eps``.
``B`` is orthogonal over all A·H channels and over each slice, so ``r(h') = r(h)``, for one norm of
the concatenation (``norm_before_fc``) as for one per slice (``fc_norm``). Only ``c`` does not
commute with ``B``: it moves into the columns of ``W``, and ones stay behind in the norm::

    h diag(c) Wᵀ / r(h) = h' (W diag(c) B)ᵀ / r(h')        W' = W diag(c) B,   c' = 1

Two norms one after the other are another matter: the scale of the first is part of what the second
measures, and cannot leave it.

The mask state ``m`` of parallel drafting was never rotated but meets the same projection, so
``m' = m B`` keeps its combination ``m Wᵀ = m' W'ᵀ``.
"""

from __future__ import annotations

import torch

from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation.rotation import Rotation


def fold_projection(
    weight: torch.Tensor,
    rotation: Rotation,
    scale: torch.Tensor | None = None,
    *,
    arithmetic: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Return ``W diag(c) B`` in the dtype ``arithmetic``.

    Args:
        weight: ``W`` or some of its rows, ``[R, A·H]``, any float dtype.
        rotation: ``Q``.
        scale: ``c`` ``[A·H]`` of the norm in front, None when there is none.
        arithmetic: float64 or float32.

    Raises:
        RotationError: the width is no multiple of ``H``, or ``scale`` has another width.
    """
    wide = weight.to(arithmetic)
    if scale is not None:
        if scale.numel() != weight.shape[-1]:
            raise RotationError(
                f"the norm before the projection has {scale.numel()} channels, the projection "
                f"{weight.shape[-1]}"
            )
        wide = wide * scale.flatten().to(wide)
    return fold_state(wide, rotation, arithmetic=arithmetic)


def fold_state(
    state: torch.Tensor, rotation: Rotation, *, arithmetic: torch.dtype = torch.float64
) -> torch.Tensor:
    """Return ``state B`` for ``state`` ``[..., A·H]``, in the dtype ``arithmetic``.

    Raises:
        RotationError: the width is no multiple of ``H``.
    """
    if state.dim() == 0 or state.shape[-1] % rotation.size:
        raise RotationError(
            f"a tensor of shape {tuple(state.shape)} is not made of hidden states of "
            f"{rotation.size} channels; the draft was made for another target"
        )
    slices = state.to(arithmetic).reshape(*state.shape[:-1], -1, rotation.size)
    return rotation.rotate(slices).reshape(state.shape)
