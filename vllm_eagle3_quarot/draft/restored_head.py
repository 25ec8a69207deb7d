# SPDX-License-Identifier: Apache-2.0
"""The original head of a rotated target, for a draft that has none and a host that shares none.

``W' = W diag(g) Q``, so ``W = W' Qᵀ / g``. Sharing the target's head costs no memory and is what a
draft without one gets wherever the host does it; vllm-ascend (0.18 to 0.26.0rc1) leaves the head of
an Eagle3 draft as uninitialised memory, and one of its paths computes logits without the draft's
``compute_logits``. A head of the draft's own is right on every path.
"""

from __future__ import annotations

from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.draft import OFFSETS, DraftFacts
from vllm_eagle3_quarot.checkpoint.names import TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.correction import Correction
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation.row_blocks import row_blocks


def not_restorable(target: Path) -> UnsupportedPairError | None:
    """Return why the original head cannot be computed from ``target``, None when it can."""
    facts = TargetFacts.from_folder(target)
    name = facts.tensors.first_of(TARGET_HEAD)
    if name is not None and facts.tensors.read_range(name, 0, 1).is_floating_point():
        return None
    state = "has no head under a known name" if name is None else f"has a quantised '{name}'"
    return UnsupportedPairError(
        f"{target}: the draft has no lm_head, this host does not share the target's with an Eagle3 "
        f"draft, and the target {state}, so none can be made. The draft's logits would come from "
        "uninitialised memory. Use a draft with its own lm_head"
    )


def restored_head(correction: Correction) -> torch.Tensor:
    """The head ``[V, H]`` of the unrotated target in the stored dtype, in the draft's vocabulary.

    A draft with ``d2t`` gets the ``V_draft`` rows that its words stand for.
    """
    assert correction.final_norm is not None
    tensors = TargetFacts.from_folder(correction.target).tensors
    name = tensors.first_of(TARGET_HEAD)
    assert name is not None
    stored = tensors.read(name)
    draft = DraftFacts(correction.draft)
    if draft.has(OFFSETS):
        offsets = draft.read(OFFSETS).long()
        stored = stored[torch.arange(offsets.shape[0], device=offsets.device) + offsets]
    head = torch.empty_like(stored)
    for start, stop in row_blocks(*stored.shape):
        restored = correction.rotation.unrotate(stored[start:stop].float())
        head[start:stop] = (restored / correction.final_norm.scale).to(stored.dtype)
    return head
