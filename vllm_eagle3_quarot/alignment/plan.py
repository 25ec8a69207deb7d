# SPDX-License-Identifier: Apache-2.0
"""What aligning a draft changes: decided from configurations and headers, refused where inexact."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_eagle3_quarot.alignment.added_tables import (
    AddedTable,
    embedding_of_original,
    head_of_original,
    unrotated_embedding,
    unrotated_head,
)
from vllm_eagle3_quarot.alignment.dequantise import QuantisedProjection, quantised_projection
from vllm_eagle3_quarot.checkpoint.draft import (
    EMBEDDING,
    HEAD,
    INPUT_NORM,
    MASK_STATE,
    OFFSETS,
    PROJECTION,
    ROLES,
    DraftFacts,
    aux_norm,
)
from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING, TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE, TargetFacts, sample_rows
from vllm_eagle3_quarot.draft.aux_states import AuxStates, aux_states_of, verify_width
from vllm_eagle3_quarot.draft.embedding import choose_embedding
from vllm_eagle3_quarot.draft.final_norm import find_final_norm
from vllm_eagle3_quarot.draft.verification import Relation, relation
from vllm_eagle3_quarot.draft.vocabulary import verify_vocabulary
from vllm_eagle3_quarot.draft.witness import confirm
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation


@dataclass(frozen=True)
class AlignmentPlan:
    """What is written differently from the draft that is read.

    Attributes:
        aux: A and the layers.
        projection: stored name of ``fc``'s weight.
        norms: stored names of the norms that move into ``fc``, in the order of its slices.
        mask: stored name of the mask state, if any.
        tables: embedding and head that the draft gets.
        quantised: how ``fc`` is to be de-quantised; None for a float one.
    """

    draft: DraftFacts
    rotation: Rotation
    aux: AuxStates
    projection: str
    norms: tuple[str, ...]
    mask: str | None
    tables: tuple[AddedTable, ...]
    quantised: QuantisedProjection | None

    def summary(self) -> list[str]:
        """One line per change."""
        lines = [f"{self.projection}: folded with {self.rotation}, A={self.aux.count}"]
        if self.quantised is not None:
            lines.append(f"{self.projection}: de-quantised ({self.quantised.scheme})")
        lines += [f"{name}: moved into {self.projection}, now ones" for name in self.norms]
        if self.mask is not None:
            lines.append(f"{self.mask}: rotated")
        lines += [f"{table.name}: {table.origin}" for table in self.tables]
        return lines


def plan_alignment(
    draft: DraftFacts,
    target: TargetFacts,
    rotation: Rotation,
    original: TargetFacts | None = None,
    *,
    dequantise: bool = False,
) -> AlignmentPlan:
    """Decide what has to change so that ``draft`` works on ``target`` by itself.

    Raises:
        UnsupportedPairError: aligned already, no pair, or a draft without an exact fold.
        RotationError: the draft's embedding shows that ``rotation`` is not the target's.
        CheckpointError: a file is broken.
    """
    _refuse_aligned(draft, rotation)
    verify_width(draft, target, rotation.size)
    aux = aux_states_of(draft, rotation.size, target.layer_count)
    if aux.count == 0:
        raise UnsupportedPairError(
            f"{draft.folder}: the draft takes the target's post-norm state "
            "(use_aux_hidden_state is false), from which a per-channel scale would have to be "
            "undone before a norm; no change of weights does that. Serve it with this plugin"
        )
    verify_vocabulary(draft)
    confirm(target, draft, rotation, original.folder if original is not None else None)
    projection = draft.name_of(PROJECTION)
    assert projection is not None  # aux_states_of has refused a draft without one
    quantised = quantised_projection(draft, projection, dequantise=dequantise)
    if draft.tensors.shape(projection)[-1] != aux.count * rotation.size:
        raise UnsupportedPairError(
            f"{draft.folder}: '{projection}' has shape {draft.tensors.shape(projection)}, "
            f"{aux.count} hidden states have {aux.count * rotation.size} channels"
        )
    tables = (
        _embedding(draft, target, rotation, original),
        _head(draft, target, rotation, original),
    )
    return AlignmentPlan(
        draft=draft,
        rotation=rotation,
        aux=aux,
        projection=projection,
        norms=norms_before_projection(draft, aux.count),
        mask=draft.name_of(MASK_STATE),
        tables=tuple(table for table in tables if table is not None),
        quantised=quantised,
    )


def _refuse_aligned(draft: DraftFacts, rotation: Rotation) -> None:
    marker = draft.alignment
    if marker is None:
        return
    same = marker.rotation == rotation.fingerprint
    raise UnsupportedPairError(
        f"{draft.folder}: this draft was aligned already, to "
        f"{'this very rotation' if same else 'another rotation'} (fingerprint "
        f"{marker.rotation[:12]}, by version {marker.tool}). Aligning it again would break it. "
        + ("Use it as it is" if same else "Start from the original draft, or undo it first")
    )


def norms_before_projection(draft: DraftFacts, count: int) -> tuple[str, ...]:
    """Stored names of the norms between ``count`` aux states and ``fc``, in their order.

    Flags of the configuration decide, as they do in the engine.

    Raises:
        UnsupportedPairError: flags and tensors contradict each other, or no fold is exact.
    """
    path = draft.folder / CONFIG_FILE
    eagle = as_object(draft.config.get("eagle_config") or {}, path, "eagle_config")
    before = eagle.get("norm_before_fc", draft.config.get("norm_before_fc", False)) is True
    each = draft.config.get("fc_norm", False) is True
    if before and each:
        raise UnsupportedPairError(
            f"{draft.folder}: 'norm_before_fc' and 'fc_norm' are both set; the second norm sees "
            "the first one's scale, which no change of weights undoes. Serve it with this plugin"
        )
    if not each and draft.tensors.first_of(aux_norm(0)) is not None:
        raise UnsupportedPairError(
            f"{draft.folder}: the file has norms per aux state, but {path} does not set 'fc_norm', "
            "so what the engine computes is unclear. Set it, or get a draft whose files agree"
        )
    wanted = [ROLES[INPUT_NORM]] if before else []
    wanted += [aux_norm(index) for index in range(count)] if each else []
    names = [draft.tensors.first_of(alternatives) for alternatives in wanted]
    found = tuple(name for name in names if name is not None)
    if len(found) != len(wanted):
        missing = next(wanted[i][0] for i, name in enumerate(names) if name is None)
        raise UnsupportedPairError(
            f"{draft.folder}: {path} announces a norm before 'fc', but there is no tensor "
            f"'{missing}'. Get the complete draft checkpoint"
        )
    return found


def _embedding(
    draft: DraftFacts, target: TargetFacts, rotation: Rotation, original: TargetFacts | None
) -> AddedTable | None:
    choice = choose_embedding(target, draft, rotation, strict=True)
    own = draft.name_of(EMBEDDING)
    if choice == "own" or (own is not None and _is_original_table(target, draft, own, rotation)):
        return None
    name = own or ROLES[EMBEDDING][0]
    if original is not None:
        return embedding_of_original(name, original, target, rotation, replaces=own is not None)
    return unrotated_embedding(name, target, rotation, replaces=own is not None)


def _is_original_table(
    target: TargetFacts, draft: DraftFacts, own: str, rotation: Rotation
) -> bool:
    """False for a table that was never trained, which the target's takes the place of."""
    stored = target.tensors.first_of(TARGET_EMBEDDING)
    if stored is None:
        return True
    rows = sample_rows(min(target.tensors.shape(stored)[0], draft.tensors.shape(own)[0]))
    theirs, ours = target.tensors.read_rows(stored, rows), draft.tensors.read_rows(own, rows)
    return relation(theirs, ours, rotation) is Relation.MATCHES


def _head(
    draft: DraftFacts, target: TargetFacts, rotation: Rotation, original: TargetFacts | None
) -> AddedTable | None:
    if draft.has(HEAD):
        return None
    if draft.has(OFFSETS) or draft.config.get("hidden_size") != rotation.size:
        raise UnsupportedPairError(
            f"{draft.folder}: the draft has no lm_head, and the target's does not fit it (another "
            "vocabulary or width). Get the complete draft checkpoint"
        )
    name = ROLES[HEAD][0]
    if original is not None and original.tensors.first_of(TARGET_HEAD) is not None:
        return head_of_original(name, original, target, rotation)
    folder = original.folder if original is not None else None
    return unrotated_head(name, target, rotation, find_final_norm(target, draft, rotation, folder))
