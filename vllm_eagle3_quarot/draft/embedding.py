# SPDX-License-Identifier: Apache-2.0
"""Whose token embedding a draft on a rotated target uses: its own, or the target's un-rotated.

A shared table costs no memory: rows of the target's ``E' = E Q`` are un-rotated when they are
looked up. So the target's is taken when the draft has none, and also when the draft's copy is the
original table all the same. A table of the draft's own that differs is what it was trained with and
is kept.

On a later stage of a pipeline there is no target table to share: what would be shared is then
copied, un-rotated, from the target's files (:mod:`vllm_eagle3_quarot.draft.copied_embedding`).
"""

from __future__ import annotations

import logging
from typing import Literal

import torch

from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, DraftFacts
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.sidecar import REMEDY
from vllm_eagle3_quarot.checkpoint.target import TargetFacts, sample_rows
from vllm_eagle3_quarot.draft.verification import Relation, relation
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.rotation.row_blocks import row_blocks

logger = logging.getLogger("vllm.eagle3_quarot")

Choice = Literal["own", "shared", "copied"]

#: Largest relative error of a row ``E'[i] Qᵀ`` against the draft's row at which both are the same
#: original: one rounding of each to bf16 leaves 2e-3 to 3e-3, training moves rows further.
SAME_ROW_TOLERANCE = 1e-2

#: A table of independent random entries has row lengths that spread by 1/√(2H) of their mean;
#: trained tables spread several times wider.
RANDOM_SPREAD_FACTOR = 1.5


def choose_embedding(
    target: TargetFacts, draft: DraftFacts, rotation: Rotation, *, strict: bool
) -> Choice:
    """Decide from files alone, so that every rank of a parallel engine decides the same.

    Raises:
        RotationError: the draft's table shows that the rotation is not the target's.
        UnsupportedPairError: the draft cannot use its own table nor the target's.
    """
    stored, own = target.tensors.first_of(TARGET_EMBEDDING), draft.name_of(EMBEDDING)
    if own is None:
        width = draft.config.get("hidden_size")
        if width != rotation.size:
            raise UnsupportedPairError(
                f"{draft.folder}: the draft has no token embedding and is {width} channels wide, "
                f"so it cannot use the target's of {rotation.size} channels. Get a draft that "
                "brings its own"
            )
        return "shared"
    if stored is None:
        logger.debug("eagle3_quarot: no token table of the target to compare the draft's with")
        return "own"
    shape, own_shape = target.tensors.shape(stored), draft.tensors.shape(own)
    if len(shape) != 2 or len(own_shape) != 2 or shape[1] != own_shape[1]:
        logger.debug("eagle3_quarot: embeddings %s and %s cannot be compared", shape, own_shape)
        return "own"
    rows = sample_rows(min(shape[0], own_shape[0]))
    own_rows = draft.tensors.read_rows(own, rows)
    answer = relation(target.tensors.read_rows(stored, rows), own_rows, rotation)
    if answer is Relation.MATCHES:
        same = shape == own_shape and _same_table(target, stored, draft, own, rotation)
        return "shared" if same else "own"
    if answer is Relation.UNRELATED:
        return _unrelated(draft, own_rows, strict=strict)
    if answer is Relation.IDENTICAL:
        raise UnsupportedPairError(
            f"{draft.folder}: the draft's embedding equals the rotated target's, so the draft was "
            "trained on, or aligned to, the rotated target; un-rotating its inputs would break it. "
            "Use the original draft, or set mode to 'off' for this one"
        )
    raise RotationError(
        f"{rotation.source}: this rotation does not belong to the target in {target.folder}: "
        f"{answer.value}. Acceptance would be near 0: {REMEDY}"
    )


def _same_table(
    target: TargetFacts, stored: str, draft: DraftFacts, own: str, rotation: Rotation
) -> bool:
    for start, stop in row_blocks(*target.tensors.shape(stored)):
        theirs = rotation.unrotate(target.tensors.read_range(stored, start, stop).float())
        ours = draft.tensors.read_range(own, start, stop).float()
        error = (theirs - ours).norm(dim=1)
        if bool((error > SAME_ROW_TOLERANCE * ours.norm(dim=1) + 1e-6).any()):
            return False
    return True


def _unrelated(draft: DraftFacts, own_rows: torch.Tensor, *, strict: bool) -> Choice:
    lengths = own_rows.float().norm(dim=1)
    spread = float(lengths.std() / lengths.mean().clamp_min(1e-12))
    if spread < RANDOM_SPREAD_FACTOR * (2 * own_rows.shape[1]) ** -0.5:
        logger.warning(
            "eagle3_quarot: the token embedding in %s looks random (never trained), which makes "
            "nearly every proposal wrong; %s",
            draft.folder,
            "the target's is used instead ('strict': false keeps the draft's)"
            if strict
            else "it is kept because 'strict' is false",
        )
        return "shared" if strict else "own"
    logger.warning(
        "eagle3_quarot: the token embedding in %s is unrelated to the target's, so the rotation "
        "could not be verified; if acceptance stays near 0, suspect the draft",
        draft.folder,
    )
    return "own"
