# SPDX-License-Identifier: Apache-2.0
"""Confirming a rotation that was rebuilt on an assumption: by a copy of the original token table.

A wrong assumption gives an orthogonal matrix that looks as good as the right one, so without a
witness nothing is served. Witnesses are the draft's own table and that of the original model.
"""

from __future__ import annotations

from pathlib import Path

from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, DraftFacts
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.pickled import PickledTensors
from vllm_eagle3_quarot.checkpoint.target import TargetFacts, sample_rows
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.draft.verification import Relation, relation
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation

REMEDY = (
    "pass the unrotated model's folder with --additional-config '{\"eagle3_quarot\": "
    '{"original_model": "<folder>"}}\' (its token embedding is compared), use a draft with its own '
    'copy of it, or pass the matrix itself with the setting "rotation"'
)


def confirm(
    target: TargetFacts, draft: DraftFacts, rotation: Rotation, original_model: Path | None
) -> None:
    """Return when a witness shows that ``rotation`` is the target's, or nothing was assumed.

    Raises:
        RotationError: the original model's table contradicts.
        UnsupportedPairError: there is no witness; with the remedy.
    """
    if rotation.assumption is None:
        return
    own = draft.name_of(EMBEDDING)
    if own is not None and _relation(target, draft.tensors, own, rotation) is Relation.MATCHES:
        return
    if original_model is not None:
        tensors = TargetFacts.from_folder(original_model).tensors
        name = tensors.first_of(TARGET_EMBEDDING)
        answer = None if name is None else _relation(target, tensors, name, rotation)
        if answer is Relation.MATCHES:
            return
        if answer is not None:
            raise RotationError(
                f"{rotation.source}: this rotation does not fit the original model in "
                f"{original_model}: {answer.value}. It was assumed that {rotation.assumption}; "
                'pass the matrix itself with the setting "rotation", or check that this is the '
                "original of the target"
            )
    raise UnsupportedPairError(
        f"{rotation.source}: it was assumed that {rotation.assumption}, and neither the draft "
        f"{draft.folder} nor an original model has a token embedding that confirms it. If it were "
        f"wrong, every proposal would be rejected: {REMEDY}"
    )


def _relation(
    target: TargetFacts, tensors: TensorIndex | PickledTensors, name: str, rotation: Rotation
) -> Relation | None:
    """How the target's token table relates to another one, None when they cannot be compared."""
    stored = target.tensors.first_of(TARGET_EMBEDDING)
    if stored is None:
        return None
    shape, other = target.tensors.shape(stored), tensors.shape(name)
    if len(shape) != 2 or len(other) != 2 or {shape[1], other[1]} != {rotation.size}:
        return None
    rows = sample_rows(min(shape[0], other[0]))
    return relation(target.tensors.read_rows(stored, rows), tensors.read_rows(name, rows), rotation)
