# SPDX-License-Identifier: Apache-2.0
"""Rotations that a quantiser records in ``config.json`` without storing the matrix.

SpinQuant counts four rotations. Only R1 rotates the residual stream, and only when it is fused into
the weights; R2, R3, R4 and the per-layer transforms of QuIP are undone within a layer, so that an
aux hidden state is what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: ``hadamard``: ``Hd_b / √b``, the natural-order Hadamard matrix. ``random-hadamard``: the random
#: one of compressed-tensors, ``diag(s) (Kᵀ ⊗ Hd) / √b``.
Construction = Literal["hadamard", "random-hadamard"]


@dataclass(frozen=True)
class ResidualRotation:
    """A rotation of the residual stream, as far as the record describes it.

    Attributes:
        tool: who made it, for messages.
        key: the entry of ``config.json`` that says so, for messages.
        construction: how ``Q``'s block is made; None when there is an obstacle.
        block: channels ``b`` of one block, repeated along the diagonal; None for all of them.
        obstacle: why ``Q`` does not follow from the record, as the second half of a sentence; None
            when it does.
        is_orthogonal: False for a matrix that Qᵀ does not undo.
    """

    tool: str
    key: str
    construction: Construction | None
    block: int | None = None
    obstacle: str | None = None
    is_orthogonal: bool = True


@dataclass(frozen=True)
class RecordedRotations:
    """What a configuration says about rotations.

    Attributes:
        tool: who made them.
        residual: the one of the residual stream; None when all of them stay inside layers.
    """

    tool: str
    residual: ResidualRotation | None
