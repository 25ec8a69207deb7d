# SPDX-License-Identifier: Apache-2.0
"""The scale ``g`` of the target's final norm, which its rotated checkpoint no longer has.

Rotating folds ``g`` into the head, ``W' = W diag(g) Q``, and leaves ones behind. A draft without a
head of its own wants ``x Wᵀ``, which is ``((x / g) Q) W'ᵀ``: the shared head serves, once ``g`` is
known. Sources, in the order in which they are asked:

1. the original checkpoint, setting ``original_model``;
2. ``verifier_norm.weight``, which some trainers leave in the draft;
3. ``rot.weight = Qᵀ diag(g) Q`` of GLM-5 style exports: ``g`` is the diagonal of ``Q rot Qᵀ``;
4. a target with tied tables, ``W = E``: then ``W' Qᵀ = E diag(g)`` with ``E = E' Qᵀ``, and ``g`` is
   the column-wise ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.draft import VERIFIER_NORM, DraftFacts
from vllm_eagle3_quarot.checkpoint.names import (
    ROTATED_NORM,
    TARGET_EMBEDDING,
    TARGET_FINAL_NORM,
    TARGET_HEAD,
)
from vllm_eagle3_quarot.checkpoint.target import TargetFacts, sample_rows
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.rotation.row_blocks import row_blocks

REMEDY = (
    "Pass the unrotated model's folder or hub id with --additional-config '{\"eagle3_quarot\": "
    '{"original_model": "<model>"}}\' (only its final norm is read), or use a draft with its own '
    "lm_head"
)

#: Rows used to read ``g`` off tied tables, and the largest relative residual at which they count as
#: tied: bf16 rounding of both tables leaves about 3e-3, independent tables leave 1.
TIED_ROWS = 512
TIED_RESIDUAL = 0.05

#: Off-diagonal weight of ``Q rot Qᵀ`` relative to its diagonal at which ``rot`` belongs to this Q;
#: rounding of a bf16 ``rot`` leaves below 1e-2.
ROTATED_NORM_RESIDUAL = 0.05


@dataclass(frozen=True)
class FinalNorm:
    """``g`` fp32 ``[H]`` and where it was found."""

    scale: torch.Tensor
    source: str


def find_final_norm(
    target: TargetFacts, draft: DraftFacts, rotation: Rotation, original_model: Path | None
) -> FinalNorm:
    """Return ``g`` from the first source that has it.

    Raises:
        UnsupportedPairError: no source has it, or one has it in an unusable form; with the remedy.
    """
    if original_model is not None:
        return _of_original(original_model, rotation)
    if draft.has(VERIFIER_NORM):
        return _usable(draft.read(VERIFIER_NORM), rotation, f"'{VERIFIER_NORM}' of {draft.folder}")
    found = _of_rotated_norm(target, rotation) or _of_tied_tables(target, rotation)
    if found is not None:
        return found
    raise UnsupportedPairError(
        f"{draft.folder}: the draft has no lm_head and would share the rotated target's, into "
        "which the final norm's scale was folded; that scale is in no file of the pair; without "
        f"it nearly every proposal would be rejected. {REMEDY}"
    )


def _of_original(folder: Path, rotation: Rotation) -> FinalNorm:
    original = TargetFacts.from_folder(folder)
    if original.final_norm is None:
        raise UnsupportedPairError(
            f"{folder}: the original model has no final norm under one of the names "
            f"{', '.join(TARGET_FINAL_NORM)}. {REMEDY}"
        )
    if original.final_norm_is_ones:
        raise UnsupportedPairError(
            f"{folder}: the final norm of the model given as the original is one everywhere, so it "
            f"is a rotated model as well. {REMEDY}"
        )
    return _usable(original.final_norm, rotation, f"'{original.final_norm_name}' of {folder}")


def _of_rotated_norm(target: TargetFacts, rotation: Rotation) -> FinalNorm | None:
    name = target.tensors.first_of(ROTATED_NORM)
    if name is None or target.tensors.shape(name) != (rotation.size, rotation.size):
        return None
    scale = torch.zeros(rotation.size, dtype=torch.float64)
    total = 0.0
    for start, stop in row_blocks(rotation.size, rotation.size):
        rows = target.tensors.read_range(name, start, stop).float()
        total += float(rows.double().square().sum())
        # The diagonal of Q (rot Qᵀ) is a sum over the middle index, of which these are some.
        unit = torch.zeros_like(rows)
        unit[torch.arange(stop - start), torch.arange(start, stop)] = 1
        scale += (rotation.unrotate(unit) * rotation.unrotate(rows)).sum(0, dtype=torch.float64)
    # Rotations keep the sum of squares, so the rest beside the diagonal is known without it.
    kept = float(scale.square().sum())
    if total - kept > ROTATED_NORM_RESIDUAL**2 * kept:
        return None
    return _usable(scale, rotation, f"'{name}' of {target.folder}")


def _of_tied_tables(target: TargetFacts, rotation: Rotation) -> FinalNorm | None:
    embedding = target.tensors.first_of(TARGET_EMBEDDING)
    head = target.tensors.first_of(TARGET_HEAD)
    if embedding is None or head is None:
        return None
    shape = target.tensors.shape(embedding)
    if len(shape) != 2 or shape != target.tensors.shape(head) or shape[1] != rotation.size:
        return None
    rows = sample_rows(shape[0], TIED_ROWS)
    products, squares = torch.zeros(2, rotation.size, dtype=torch.float64)
    total = 0.0
    for start, stop in row_blocks(len(rows), rotation.size):
        some = rows[start:stop]
        table = rotation.unrotate(target.tensors.read_rows(embedding, some).float()).double()
        scaled = rotation.unrotate(target.tensors.read_rows(head, some).float()).double()
        products += (table * scaled).sum(0)
        squares += table.square().sum(0)
        total += float(scaled.square().sum())
    scale = products / squares.clamp_min(1e-12)
    # Least squares: what the columns' ratios explain is orthogonal to what they do not.
    if total - float((scale * products).sum()) > TIED_RESIDUAL**2 * total:
        return None
    return _usable(scale, rotation, f"the tied tables of {target.folder}")


def _usable(scale: torch.Tensor, rotation: Rotation, source: str) -> FinalNorm:
    # A copy: what was read maps the file, and a file replaced later must not reach a server.
    scale = scale.to(torch.float32, copy=True).flatten()
    if scale.shape[0] != rotation.size:
        raise UnsupportedPairError(
            f"{source} has {scale.shape[0]} channels, the target {rotation.size}; it belongs to "
            f"another model. {REMEDY}"
        )
    if not bool(torch.isfinite(scale).all()) or bool((scale == 0).any()):
        raise UnsupportedPairError(
            f"{source} has zero or non-finite entries, so the head cannot be un-scaled. {REMEDY}"
        )
    return FinalNorm(scale, source)
