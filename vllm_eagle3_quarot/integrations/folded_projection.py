# SPDX-License-Identifier: Apache-2.0
"""Mode ``fold``: the projection of a loaded draft is changed once, and no step does extra work.

With ``B = blockdiag(Q, …, Q)`` over the A slices and ``h' = h B``, the projection ``W`` of a draft
without a norm in front of it becomes ``W B``, since ``h Wᵀ = h' Bᵀ Wᵀ``. An RMSNorm in front,
``h diag(c) / r(h)`` with ``r(h)² = mean(h²) + eps``, does not stand in the way: ``B`` is orthogonal
over all A·H channels and over each slice, so ``r(h') = r(h)`` for one norm of the concatenation
(``norm_before_fc``) as for one per slice (``fc_norm``). Only ``c`` does not commute with ``B``; it
moves into the columns of ``W`` and leaves ones behind (vllm_eagle3_quarot/draft/fold.py)::

    h diag(c) Wᵀ / r(h) = h' (W diag(c) B)ᵀ / r(h')

The mask state of parallel drafting was never rotated but meets the same ``W``: ``m' = m B``.

Exact is no more than that. Two norms one after the other are not: the scale of the first is part of
what the second measures. A quantised ``W`` is not, nor is a draft whose input meets no projection.
These are refused while the draft is built, or, when settings are not strict, corrected at run time,
which is always right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from vllm_eagle3_quarot.checkpoint.draft import PROJECTION, ROLES
from vllm_eagle3_quarot.draft.correction import Correction
from vllm_eagle3_quarot.draft.fold import fold_projection
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.integrations.unrotated_norm import first_norms
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.row_blocks import row_blocks

logger = logging.getLogger("vllm.eagle3_quarot")

MASK_STATE = "mask_hidden"

REMEDY = "Set 'mode' to 'runtime' (the default): it un-rotates the states on every step instead"


def settle_mode(correction: Correction, inner: Any, *, strict: bool) -> Correction:
    """Return ``correction``, in mode ``runtime`` if the fold cannot be exact and may be left out.

    Args:
        correction: what the draft needs.
        inner: the draft's inner model, built and not yet loaded.
        strict: refuse instead.

    Raises:
        UnsupportedPairError: the fold cannot be exact, and ``strict`` is on.
    """
    if correction.mode != "fold":
        return correction
    obstacle = fold_obstacle(inner)
    if obstacle is None:
        return correction
    reason = f"{correction.draft}: mode 'fold' cannot correct this draft exactly: {obstacle}"
    if strict:
        raise UnsupportedPairError(f"{reason}. {REMEDY}")
    logger.warning("eagle3_quarot: %s. Mode 'runtime' is used instead", reason)
    return replace(correction, mode="runtime")


def fold_obstacle(inner: Any) -> str | None:
    """Why ``Q`` cannot be folded into the projection of ``inner``; None when it can."""
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    projection = getattr(inner, "fc", None)
    if projection is None:
        return "it takes the target's post-norm state, which passes through no projection"
    method = getattr(projection, "quant_method", None)
    if not isinstance(method, UnquantizedLinearMethod):
        return (
            f"its 'fc' is quantised ({type(method).__name__}), and rotated integers or 8-bit "
            "floats would have to be quantised again, with another error than the one that the "
            "draft was published with"
        )
    if getattr(inner, "input_norm", None) is not None and getattr(inner, "fc_norm", None):
        return "two norms stand in front of its 'fc', and the scale of the first cannot be moved"
    return None


class ProjectionFold:
    """Folds ``Q`` into a draft after each load that brought the tensors which it changes.

    A second load without them (an update of other weights) must not fold again, and one that brings
    only some of them would mix folded and original ones.
    """

    def __init__(self, rotation: Rotation) -> None:
        self._rotation = rotation
        self._arrived: set[str] = set()

    def watched(
        self, weights: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass ``weights`` on and remember which of them came."""
        self._arrived = set()
        for name, tensor in weights:
            self._arrived.add(PROJECTION if name in ROLES[PROJECTION] else name)
            yield name, tensor

    def finish(self, draft: Any) -> None:
        """Fold into the loaded ``draft``, unless the load brought nothing to fold into.

        Raises:
            CheckpointError: the load brought a part of what the fold changes.
        """
        inner = draft.model
        norms = first_norms(inner)
        changed = {PROJECTION, *_norm_names(inner)}
        mask = getattr(draft, MASK_STATE, None)
        if mask is not None:
            changed.add(MASK_STATE)
        missing = sorted(changed - self._arrived)
        if len(missing) == len(changed):
            return
        if missing:
            raise CheckpointError(
                f"mode 'fold' changes {', '.join(sorted(changed))} together, but the weights that "
                f"were loaded lack {', '.join(missing)}. {REMEDY}"
            )
        scale = torch.cat([norm.weight.data for norm in norms]) if norms else None
        _fold_in_place(inner.fc.weight.data, self._rotation, scale)
        for norm in norms:
            norm.weight.data.fill_(1)
        if mask is not None:
            _fold_in_place(mask, self._rotation, None)


def _fold_in_place(weight: torch.Tensor, rotation: Rotation, scale: torch.Tensor | None) -> None:
    """``W diag(c) B`` in place: a block of rows at a time, in fp32, with one cast back.

    On the CPU: fp32 products of accelerators may be allowed to round their inputs.
    """
    arithmetic = torch.promote_types(weight.dtype, torch.float32)
    for start, stop in row_blocks(*weight.shape):
        rows = weight[start:stop]
        rows.copy_(fold_projection(rows.cpu(), rotation, scale, arithmetic=arithmetic))


def _norm_names(inner: Any) -> list[str]:
    if getattr(inner, "input_norm", None) is not None:
        return ["input_norm.weight"]
    return [f"fc_norm.{index}.weight" for index in range(len(first_norms(inner)))]
