# SPDX-License-Identifier: Apache-2.0
"""Writing an aligned draft, and giving the original one back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from vllm_eagle3_quarot import __version__
from vllm_eagle3_quarot.alignment.dequantise import dequantised_config
from vllm_eagle3_quarot.alignment.plan import AlignmentPlan, norms_before_projection
from vllm_eagle3_quarot.alignment.rewrite import (
    ChangedTensor,
    Changes,
    Progress,
    rewrite,
)
from vllm_eagle3_quarot.checkpoint.draft import MASK_STATE, PROJECTION, DraftFacts
from vllm_eagle3_quarot.checkpoint.json_file import read_json_object
from vllm_eagle3_quarot.checkpoint.marker import MARKER_KEY, AlignmentMarker
from vllm_eagle3_quarot.checkpoint.new_folder import new_folder
from vllm_eagle3_quarot.checkpoint.safetensors_file import (
    FLOAT_NAMES,
    NewTensor,
    read_header,
    tensor_bytes,
    write_file,
)
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.draft.fold import fold_projection, fold_state, unfold_projection
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation

#: Norm scales and mask state as they were, for :func:`undo`. In a folder of its own, because an
#: engine loads every safetensors file at the top.
UNDO_FILE = "optional/eagle3_quarot_undo.safetensors"


def align(
    plan: AlignmentPlan,
    output: Path,
    *,
    dtype: torch.dtype | None = None,
    overwrite: bool = False,
    progress: Progress = lambda written: None,
) -> None:
    """Write the aligned draft to ``output``; ``dtype`` is that of changed and added tensors.

    Raises:
        CheckpointError: a file is broken, or ``output`` cannot be written; nothing is left behind.
    """
    refuse_own_folder(plan.draft.folder, output)
    config = dict(read_json_object(plan.draft.folder / CONFIG_FILE))
    if plan.quantised is not None:
        config = dequantised_config(config)
    marker = AlignmentMarker(
        rotation=plan.rotation.fingerprint,
        tool=__version__,
        added=tuple(table.name for table in plan.tables if not table.replaces),
        replaced=tuple(table.name for table in plan.tables if table.replaces),
    )
    document = {**_other_notes(config), **marker.document()}
    kept = [*plan.norms, *([plan.mask] if plan.mask is not None else [])]
    changes = Changes(
        tensors=_aligned_tensors(plan, dtype),
        dropped=plan.quantised.dropped if plan.quantised is not None else (),
        anchor=plan.projection,
        config={**config, MARKER_KEY: document},
        metadata={MARKER_KEY: json.dumps(document)},
        files={UNDO_FILE: _tensors_writer(plan.draft, kept)} if kept else {},
    )
    with new_folder(output, overwrite=overwrite) as folder:
        rewrite(plan.draft, folder, changes, progress)


def undo(
    draft: DraftFacts,
    rotation: Rotation,
    output: Path,
    *,
    overwrite: bool = False,
    progress: Progress = lambda written: None,
) -> AlignmentMarker:
    """Write the draft from which ``draft`` was aligned, equal to it within rounding.

    Norm scales and mask state come back bit for bit. A token table that was never trained and had
    been replaced stays replaced.

    Raises:
        UnsupportedPairError: the draft is not aligned, or to another rotation.
        CheckpointError: a file is broken, or ``output`` cannot be written; nothing is left behind.
    """
    refuse_own_folder(draft.folder, output)
    marker = draft.alignment
    projection = draft.name_of(PROJECTION)
    if marker is None or projection is None:
        raise UnsupportedPairError(
            f"{draft.folder}: this draft has no mark of an alignment, so there is nothing known "
            "to undo"
        )
    if marker.rotation != rotation.fingerprint:
        raise UnsupportedPairError(
            f"{draft.folder}: this draft was aligned to the rotation {marker.rotation[:12]}, the "
            f"one given is {rotation.fingerprint[:12]} ({rotation.source}). Pass the target, or "
            "the rotation file, that it was aligned to"
        )
    stored = draft.tensors
    norms = norms_before_projection(draft, stored.shape(projection)[-1] // rotation.size)
    kept = _kept_tensors(draft, norms)
    scale = torch.cat([kept[name].flatten() for name in norms]) if norms else None

    def rows(start: int, stop: int) -> torch.Tensor:
        return unfold_projection(stored.read_range(projection, start, stop), rotation, scale)

    restored = [
        ChangedTensor(name, tuple(value.shape), value.dtype, _whole(value))
        for name, value in kept.items()
    ]
    dtype = stored.read_range(projection, 0, 1).dtype
    config = dict(read_json_object(draft.folder / CONFIG_FILE))
    notes = _other_notes(config)
    config.pop(MARKER_KEY, None)
    changes = Changes(
        tensors=(ChangedTensor(projection, stored.shape(projection), dtype, rows), *restored),
        dropped=marker.added,
        anchor=projection,
        config={**config, MARKER_KEY: notes} if notes else config,
        metadata={MARKER_KEY: json.dumps(notes) if notes else ""},
        files={UNDO_FILE: None},
    )
    with new_folder(output, overwrite=overwrite) as folder:
        rewrite(draft, folder, changes, progress)
    return marker


def refuse_own_folder(draft: Path, output: Path) -> None:
    """Raise when ``output`` is the draft's folder, or inside it, or around it.

    Raises:
        UnsupportedPairError: it is.
    """
    source, destination = draft.resolve(), output.resolve()
    if source.is_relative_to(destination) or destination.is_relative_to(source):
        raise UnsupportedPairError(
            f"{output} is not a folder apart from the draft's, {draft}; nothing was written. "
            "Choose another one"
        )


def _aligned_tensors(plan: AlignmentPlan, dtype: torch.dtype | None) -> tuple[ChangedTensor, ...]:
    stored, rotation = plan.draft.tensors, plan.rotation
    norms = [stored.read(name) for name in plan.norms]
    scale = torch.cat([norm.flatten() for norm in norms]).double() if norms else None
    factor = None
    if plan.quantised is not None:
        factor = stored.read(plan.quantised.scale).double()
    own_dtype = _float_dtype(plan)

    def projection_rows(start: int, stop: int) -> torch.Tensor:
        weight = stored.read_range(plan.projection, start, stop).double()
        if factor is not None:
            weight = weight * (factor.reshape(-1, 1)[start:stop] if factor.numel() > 1 else factor)
        return fold_projection(weight, rotation, scale)

    changed = [
        ChangedTensor(
            plan.projection, stored.shape(plan.projection), dtype or own_dtype, projection_rows
        )
    ]
    for name, norm in zip(plan.norms, norms, strict=True):
        ones = torch.ones_like(norm)
        changed.append(ChangedTensor(name, tuple(norm.shape), norm.dtype, _whole(ones)))
    if plan.mask is not None:
        mask = stored.read(plan.mask)
        rotated = fold_state(mask, rotation)
        changed.append(ChangedTensor(plan.mask, tuple(mask.shape), mask.dtype, _whole(rotated)))
    for table in plan.tables:
        changed.append(
            ChangedTensor(table.name, table.shape, dtype or table.dtype or own_dtype, table.rows)
        )
    return tuple(changed)


def _float_dtype(plan: AlignmentPlan) -> torch.dtype:
    """The dtype of a float projection; for a quantised one what the configuration names."""
    if plan.quantised is None:
        return plan.draft.tensors.read_range(plan.projection, 0, 1).dtype
    named = plan.draft.config.get("torch_dtype") or plan.draft.config.get("dtype")
    by_name = {str(dtype).removeprefix("torch."): dtype for dtype in FLOAT_NAMES}
    return by_name.get(str(named), torch.bfloat16)


def _tensors_writer(draft: DraftFacts, names: Sequence[str]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        tensors = [(name, draft.tensors.read(name)) for name in names]
        new = [
            NewTensor(
                name, FLOAT_NAMES[value.dtype], tuple(value.shape), iter([tensor_bytes(value)])
            )
            for name, value in tensors
        ]
        write_file(path, new, {})

    return write


def _kept_tensors(draft: DraftFacts, norms: Sequence[str]) -> dict[str, torch.Tensor]:
    mask = draft.name_of(MASK_STATE)
    names = [*norms, *([mask] if mask is not None else [])]
    if not names:
        return {}
    path = draft.folder / UNDO_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing, in which aligning kept the scales of the draft's norms; without "
            "it the original cannot be had back. Restore the file, or use the original draft"
        )
    read_header(path)
    index = TensorIndex(path.parent, dict.fromkeys(names, path))
    return {name: index.read(name) for name in names}


def _whole(value: torch.Tensor) -> Callable[[int, int], torch.Tensor]:
    return lambda start, stop: value[start:stop]


def _other_notes(config: dict[str, object]) -> dict[str, object]:
    notes = config.get(MARKER_KEY)
    return {k: v for k, v in notes.items() if k != "aligned"} if isinstance(notes, dict) else {}
