# SPDX-License-Identifier: Apache-2.0
"""Embedding and head for a draft that shares the target's: in the original basis.

With the original model at hand they are its own tables, bit for bit. Without it they are taken out
of the rotated target: ``E = E' Qᵀ`` and ``W = (W' Qᵀ) diag(1/g)``, where ``g`` is the scale of the
final norm that rotating folded into the head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING, TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.target import TargetFacts, sample_rows
from vllm_eagle3_quarot.draft.final_norm import FinalNorm
from vllm_eagle3_quarot.draft.verification import Relation, relation
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation


@dataclass(frozen=True)
class AddedTable:
    """A table ``[V, H]`` to be written into the draft.

    Attributes:
        name: as it is stored in the draft.
        shape: ``(V, H)``.
        dtype: of the source; None to take that of the projection.
        origin: in words, for the summary.
        replaces: the draft has a tensor of this name, which is given up.
        rows: reads rows ``[start, stop)``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype | None
    origin: str
    replaces: bool
    rows: Callable[[int, int], torch.Tensor]


def unrotated_embedding(
    name: str, target: TargetFacts, rotation: Rotation, *, replaces: bool
) -> AddedTable:
    """``E = E' Qᵀ`` from the rotated target.

    Raises:
        UnsupportedPairError: the target has no float table of that width.
    """
    stored, shape = _float_table(target, TARGET_EMBEDDING, rotation, "token embedding")

    def rows(start: int, stop: int) -> torch.Tensor:
        return rotation.unrotate(target.tensors.read_range(stored, start, stop).double())

    origin = f"'{stored}' of the target, un-rotated" + _replaced(replaces)
    return AddedTable(name, shape, None, origin, replaces, rows)


def unrotated_head(
    name: str, target: TargetFacts, rotation: Rotation, norm: FinalNorm
) -> AddedTable:
    """``W = (W' Qᵀ) diag(1/g)`` from the rotated target.

    Raises:
        UnsupportedPairError: the target has no float head of that width.
    """
    stored, shape = _float_table(target, TARGET_HEAD, rotation, "head")
    scale = norm.scale.double()

    def rows(start: int, stop: int) -> torch.Tensor:
        return rotation.unrotate(target.tensors.read_range(stored, start, stop).double()) / scale

    origin = f"'{stored}' of the target, un-rotated and without the scale of {norm.source}"
    return AddedTable(name, shape, None, origin, False, rows)


def embedding_of_original(
    name: str, original: TargetFacts, target: TargetFacts, rotation: Rotation, *, replaces: bool
) -> AddedTable:
    """The original model's own embedding.

    Raises:
        UnsupportedPairError: it has none, or it is not the one that the target rotated.
    """
    stored, shape = _float_table(original, TARGET_EMBEDDING, rotation, "token embedding")
    _verify_original(original, target, rotation)
    origin = f"'{stored}' of the original model" + _replaced(replaces)
    return _copied(name, stored, shape, original, origin, replaces)


def head_of_original(
    name: str, original: TargetFacts, target: TargetFacts, rotation: Rotation
) -> AddedTable:
    """The original model's own head.

    Raises:
        UnsupportedPairError: it has no usable one, or it is not the target's original.
    """
    stored, shape = _float_table(original, TARGET_HEAD, rotation, "head")
    _verify_original(original, target, rotation)
    return _copied(name, stored, shape, original, f"'{stored}' of the original model", False)


def _copied(
    name: str,
    stored: str,
    shape: tuple[int, ...],
    original: TargetFacts,
    origin: str,
    replaces: bool,
) -> AddedTable:
    def rows(start: int, stop: int) -> torch.Tensor:
        return original.tensors.read_range(stored, start, stop)

    dtype = original.tensors.read_range(stored, 0, 1).dtype
    return AddedTable(name, shape, dtype, origin, replaces, rows)


def _float_table(
    facts: TargetFacts, names: Sequence[str], rotation: Rotation, what: str
) -> tuple[str, tuple[int, ...]]:
    stored = facts.tensors.first_of(names)
    if stored is None:
        raise UnsupportedPairError(
            f"{facts.folder}: the draft needs a {what} and this model has none under one of the "
            f"names {', '.join(names)}. Pass the original model, or use a draft with its own"
        )
    shape = facts.tensors.shape(stored)
    if len(shape) != 2 or shape[1] != rotation.size or 0 in shape:
        raise CheckpointError(
            f"{facts.folder}: '{stored}' has shape {shape} where rows of {rotation.size} channels "
            "are expected"
        )
    if not facts.tensors.read_range(stored, 0, 1).is_floating_point():
        raise UnsupportedPairError(
            f"{facts.folder}: '{stored}' is quantised, so no exact copy can be made for the draft. "
            "Pass the original model with --original-model-path"
        )
    return stored, shape


def _verify_original(original: TargetFacts, target: TargetFacts, rotation: Rotation) -> None:
    theirs = target.tensors.first_of(TARGET_EMBEDDING)
    ours = original.tensors.first_of(TARGET_EMBEDDING)
    if theirs is None or ours is None:
        return
    shapes = target.tensors.shape(theirs), original.tensors.shape(ours)
    answer = None
    if shapes[0] == shapes[1]:
        rows = sample_rows(shapes[0][0])
        answer = relation(
            target.tensors.read_rows(theirs, rows), original.tensors.read_rows(ours, rows), rotation
        )
    if answer is not Relation.MATCHES:
        reason = answer.value if answer is not None else f"shapes {shapes[0]} and {shapes[1]}"
        raise UnsupportedPairError(
            f"{original.folder} is not the original of {target.folder}: their embeddings do not "
            f"fit together through the rotation ({reason})"
        )


def _replaced(replaces: bool) -> str:
    return ", in place of the draft's own, which was never trained" if replaces else ""
