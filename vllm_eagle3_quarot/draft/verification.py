# SPDX-License-Identifier: Apache-2.0
"""Does ``Q`` belong to this target and this draft? Asked of numbers, before serving.

A draft that brings its own copy of the original token embedding ``E`` is a witness: the target
stores ``E' = E Q``, so rows of ``E' Qᵀ`` must be the draft's rows. Other answers have names: ``E'
Q`` fits (the stored matrix is the transpose), ``E'`` itself fits (the draft already lives in the
rotated basis, or the target is not rotated), none fits although row lengths agree (an orthogonal
matrix keeps them, so the tables are related by another ``Q``: the rotation file is stale).
"""

from __future__ import annotations

from enum import Enum

import torch

from vllm_eagle3_quarot.rotation.rotation import Rotation

#: Mean cosine above which two sets of rows count as one. Copies that differ by bf16 rounding reach
#: 0.99999, a fine-tuned copy stays above 0.9, unrelated rows of H channels are near 1/√H.
SAME_ROWS_COSINE = 0.9

#: Largest relative difference of row lengths between a table and its rotated copy: bf16 rounding
#: gives about 1e-3 at H = 192 and less above. Independent random rows of one scale differ by more.
SAME_LENGTH_TOLERANCE = 5e-3


class Relation(Enum):
    """How a draft's embedding rows relate to the target's."""

    MATCHES = "the un-rotated target table is the draft's table"
    TRANSPOSED = "the target table multiplied by Q instead of its transpose is the draft's table"
    IDENTICAL = "the target table is the draft's table as it is"
    OTHER_ROTATION = "both tables have the same row lengths, but this Q does not relate them"
    UNRELATED = "the tables are unrelated"


def relation(target_rows: torch.Tensor, draft_rows: torch.Tensor, rotation: Rotation) -> Relation:
    """Compare the same rows ``[n, H]`` of both tables, any float dtype."""
    stored, own = target_rows.float(), draft_rows.float()
    answers = {
        Relation.MATCHES: rotation.unrotate(stored),
        Relation.TRANSPOSED: rotation.rotate(stored),
        Relation.IDENTICAL: stored,
    }
    cosines = {name: _mean_cosine(rows, own) for name, rows in answers.items()}
    best = max(cosines, key=lambda name: cosines[name])
    if cosines[best] > SAME_ROWS_COSINE:
        return best
    lengths, own_lengths = stored.norm(dim=1), own.norm(dim=1)
    difference = (lengths - own_lengths).abs() / own_lengths.clamp_min(1e-12)
    if bool((difference < SAME_LENGTH_TOLERANCE).all()):
        return Relation.OTHER_ROTATION
    return Relation.UNRELATED


def _mean_cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=1).mean())
