# SPDX-License-Identifier: Apache-2.0
"""The exact fold of ``Q`` into what reads aux hidden states: pure algebra on tensors.

A draft computes ``fc(norm(h))`` of A concatenated states ``h`` ``[A·H]``. On a rotated target it
gets ``h' = h blockdiag(Q, …, Q)`` instead. RMSNorm's scalar is the same for ``h`` and ``h'``; its
per-channel scale ``gamma`` is not, so it moves into the projection first::

    fc'   = fc diag(gamma) blockdiag(Q, …, Q)        and gamma := 1
    mask' = mask blockdiag(Q, …, Q)

``mask`` is a learned state that takes the place of ``h`` in parallel drafting. The block diagonal
is never built: each of the A slices is multiplied by itself.
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
    """Return ``fc diag(gamma) blockdiag(Q, …, Q)`` in the dtype ``arithmetic``.

    Args:
        weight: ``fc`` or some of its rows, ``[R, A·H]``, any float dtype.
        scale: ``gamma`` ``[A·H]``, None for a draft without a norm before ``fc``.
        arithmetic: float64, or float32 where a device has no other.

    Raises:
        RotationError: the width is no multiple of ``H``, or ``scale`` has another width.
    """
    wide = weight.to(arithmetic)
    if scale is not None:
        wide = wide * _checked(scale, weight.shape[-1]).to(wide)
    return _slice_by_slice(wide, rotation, inverse=False)


def unfold_projection(
    weight: torch.Tensor,
    rotation: Rotation,
    scale: torch.Tensor | None = None,
    *,
    arithmetic: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Return ``fc`` for ``weight = fc'``: the inverse of :func:`fold_projection`.

    A column whose ``gamma`` is zero was lost in the fold and is never used: it becomes zero.

    Raises:
        RotationError: as :func:`fold_projection`.
    """
    wide = _slice_by_slice(weight.to(arithmetic), rotation, inverse=True)
    if scale is not None:
        divisor = _checked(scale, weight.shape[-1]).to(wide)
        wide = torch.where(divisor == 0, 0.0, wide / divisor)
    return wide


def fold_state(
    state: torch.Tensor, rotation: Rotation, *, arithmetic: torch.dtype = torch.float64
) -> torch.Tensor:
    """Return ``state blockdiag(Q, …, Q)`` for ``state`` ``[..., A·H]``, in ``arithmetic``.

    Raises:
        RotationError: the width is no multiple of ``H``.
    """
    return _slice_by_slice(state.to(arithmetic), rotation, inverse=False)


def _slice_by_slice(wide: torch.Tensor, rotation: Rotation, *, inverse: bool) -> torch.Tensor:
    if wide.dim() == 0 or wide.shape[-1] % rotation.size:
        raise RotationError(
            f"a tensor of shape {tuple(wide.shape)} is not made of hidden states of "
            f"{rotation.size} channels; the draft was made for another target"
        )
    slices = wide.reshape(*wide.shape[:-1], -1, rotation.size)
    product = rotation.unrotate(slices) if inverse else rotation.rotate(slices)
    return product.reshape(wide.shape)


def _checked(scale: torch.Tensor, width: int) -> torch.Tensor:
    if scale.numel() != width:
        raise RotationError(
            f"the norm before the projection has {scale.numel()} channels, the projection {width}"
        )
    return scale.flatten()
