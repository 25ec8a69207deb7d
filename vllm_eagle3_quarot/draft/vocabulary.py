# SPDX-License-Identifier: Apache-2.0
"""Vocabulary maps of a draft whose head covers a part of the target's vocabulary.

``d2t`` int ``[V_draft]`` holds offsets: draft id ``i`` stands for target id ``i + d2t[i]``. ``t2d``
bool ``[V]`` marks the target ids that are covered. A wrong map is not noticed by an engine:
proposals become other words, and acceptance falls to near zero as with a rotation that was not
undone.
"""

from __future__ import annotations

import torch

from vllm_eagle3_quarot.checkpoint.draft import MEMBERSHIP, OFFSETS, DraftFacts
from vllm_eagle3_quarot.errors import UnsupportedPairError

COST = "Proposals would be other words than the draft means, and nearly all be rejected"


def verify_vocabulary(draft: DraftFacts) -> None:
    """Check ``d2t`` and ``t2d`` against each other and against the sizes.

    Raises:
        UnsupportedPairError: the maps cannot be right; the message names the first bad entry.
    """
    total, reduced = draft.vocabulary, draft.draft_vocabulary
    if total is None or reduced is None:
        return
    if not draft.has(OFFSETS):
        if reduced != total:
            raise UnsupportedPairError(
                f"{draft.folder}: the draft's head has {reduced} of {total} words but there is no "
                f"'d2t' that says which. {COST}. Get the complete draft checkpoint"
            )
        return
    offsets = draft.read(OFFSETS).long()
    if offsets.dim() != 1 or offsets.shape[0] != reduced:
        raise UnsupportedPairError(
            f"{draft.folder}: 'd2t' has shape {tuple(offsets.shape)}, the draft's head has "
            f"{reduced} words. {COST}. Get a draft whose files belong together"
        )
    membership = draft.read(MEMBERSHIP) if draft.has(MEMBERSHIP) else None
    verify_maps(offsets, membership, total, str(draft.folder))


def verify_maps(
    offsets: torch.Tensor, membership: torch.Tensor | None, total: int, where: str
) -> None:
    """Check that ``i + offsets[i]`` are distinct ids of ``total`` words, those of ``membership``.

    Raises:
        UnsupportedPairError: out of range, ambiguous or contradicting; ids that are stored instead
            of offsets are named as such.
    """
    ids = torch.arange(offsets.shape[0]) + offsets
    if _is_absolute(offsets, ids, membership, total):
        raise UnsupportedPairError(
            f"{where}: 'd2t' holds target ids ({offsets[:3].tolist()} ...) where offsets are "
            f"expected (target id = i + d2t[i]). {COST}. Subtract torch.arange({len(offsets)}) "
            "from it and save the draft again"
        )
    outside = torch.nonzero((ids < 0) | (ids >= total)).flatten()
    if outside.numel():
        first = int(outside[0])
        raise UnsupportedPairError(
            f"{where}: 'd2t[{first}]' = {int(offsets[first])} maps word {first} of the draft to id "
            f"{int(ids[first])}, outside the vocabulary of {total} words. {COST}. Get a draft that "
            "was made for this target"
        )
    order = torch.argsort(ids, stable=True)
    repeated = torch.nonzero(ids[order][1:] == ids[order][:-1]).flatten()
    if repeated.numel():
        pairs = order[repeated + 1]
        first = int(pairs.min())
        raise UnsupportedPairError(
            f"{where}: 'd2t[{first}]' = {int(offsets[first])} maps word {first} of the draft to id "
            f"{int(ids[first])}, which another word stands for already. {COST}. Get a draft whose "
            "files belong together"
        )
    if membership is not None:
        _verify_membership(offsets, membership, total, where)


def _is_absolute(
    offsets: torch.Tensor, ids: torch.Tensor, membership: torch.Tensor | None, total: int
) -> bool:
    """True when the entries make sense as ids and not as offsets."""
    if membership is not None:
        marked = torch.nonzero(membership.flatten()).flatten()
        return torch.equal(offsets.sort().values, marked) and not torch.equal(
            ids.sort().values, marked
        )
    inside = bool(((offsets >= 0) & (offsets < total)).all())
    increasing = offsets.numel() > 1 and bool((offsets[1:] > offsets[:-1]).all())
    plausible = bool(((ids >= 0) & (ids < total)).all())
    return inside and increasing and not plausible


def _verify_membership(
    offsets: torch.Tensor, membership: torch.Tensor, total: int, where: str
) -> None:
    if membership.dim() != 1 or membership.shape[0] != total:
        raise UnsupportedPairError(
            f"{where}: 't2d' has shape {tuple(membership.shape)}, the vocabulary has {total} "
            f"words. {COST}. Get a draft that was made for this target"
        )
    covered = membership.bool()
    count = int(covered.sum())
    if count != offsets.shape[0]:
        raise UnsupportedPairError(
            f"{where}: 't2d' marks {count} words, 'd2t' maps {offsets.shape[0]}. {COST}. Get a "
            "draft whose files belong together"
        )
    ids = torch.arange(offsets.shape[0]) + offsets
    missing = torch.nonzero(~covered[ids]).flatten()
    if missing.numel():
        first = int(missing[0])
        raise UnsupportedPairError(
            f"{where}: 'd2t[{first}]' = {int(offsets[first])} maps word {first} of the draft to id "
            f"{int(ids[first])}, which 't2d' does not mark. {COST}. Get a draft whose files belong "
            "together"
        )
