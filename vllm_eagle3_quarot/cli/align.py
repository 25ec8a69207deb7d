# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot align``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer

from vllm_eagle3_quarot.alignment.align import align, refuse_own_folder, undo
from vllm_eagle3_quarot.alignment.plan import AlignmentPlan, plan_alignment
from vllm_eagle3_quarot.alignment.rewrite import weight_bytes
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.selected_files import folder_with_tables, whole_folder
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.cli.options import (
    DraftModel,
    Json,
    OriginalModel,
    OutputFolder,
    Overwrite,
    RotationFile,
    TargetModel,
)
from vllm_eagle3_quarot.cli.output import progress_bar, reported, show
from vllm_eagle3_quarot.draft.target_rotation import rotation_of
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.settings import Settings


class Dtype(str, Enum):
    """Dtypes that a draft is stored in."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


def align_command(
    draft_model: DraftModel,
    target_model: TargetModel,
    output: OutputFolder,
    original_model: OriginalModel = None,
    rotation_file: RotationFile = None,
    dtype: Annotated[
        Dtype | None,
        typer.Option(help="Of changed and added tensors; as stored unless given."),
    ] = None,
    dequantise: Annotated[
        bool,
        typer.Option("--dequantise", help="Make a quantised projection a float one."),
    ] = False,
    undo_alignment: Annotated[
        bool, typer.Option("--undo", help="Give the original of an aligned draft back.")
    ] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change; write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a draft that works on the rotated target in an engine without this plugin.

    The rotation is folded exactly into what reads the target's hidden states. The result carries a
    mark, so that nothing corrects it a second time.
    """
    with reported(as_json=as_json):
        draft = DraftFacts(whole_folder(draft_model))
        target = TargetFacts.from_folder(folder_with_tables(target_model))
        rotation = _rotation(target, rotation_file)
        refuse_own_folder(draft.folder, output)
        if undo_alignment:
            _undo(draft, rotation, output, overwrite=overwrite, dry_run=dry_run, as_json=as_json)
            return
        original = None
        if original_model is not None:
            original = TargetFacts.from_folder(folder_with_tables(original_model))
        plan = plan_alignment(draft, target, rotation, original, dequantise=dequantise)
        if not dry_run:
            total = weight_bytes(draft)
            with progress_bar("aligning", total, as_json=as_json) as progress:
                wanted = getattr(torch, dtype.value) if dtype is not None else None
                align(plan, output, dtype=wanted, overwrite=overwrite, progress=progress)
        _show_plan(plan, output, dry_run=dry_run, as_json=as_json)


def _rotation(target: TargetFacts, file: Path | None) -> Rotation:
    rotation = rotation_of(target, Settings(rotation=str(file) if file is not None else None))
    if rotation is None:
        raise UnsupportedPairError(
            f"{target.folder}: nothing says that this target is rotated, so its draft needs no "
            "alignment; nothing was written"
        )
    return rotation


def _undo(
    draft: DraftFacts,
    rotation: Rotation,
    output: Path,
    *,
    overwrite: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    if dry_run:
        raise typer.BadParameter("--undo has no --dry-run")
    with progress_bar("restoring", weight_bytes(draft), as_json=as_json) as progress:
        marker = undo(draft, rotation, output, overwrite=overwrite, progress=progress)
    document = {
        "output": str(output),
        "rotation": marker.rotation,
        "removed": list(marker.added),
        "still_replaced": list(marker.replaced),
    }
    lines = [f"restored {draft.folder} to {output}"]
    lines += [f"{name}: removed" for name in marker.added]
    lines += [f"{name}: stays the target's; the draft's own is gone" for name in marker.replaced]
    show(document, lines, as_json=as_json)


def _show_plan(plan: AlignmentPlan, output: Path, *, dry_run: bool, as_json: bool) -> None:
    document: dict[str, object] = {
        "output": None if dry_run else str(output),
        "draft": str(plan.draft.folder),
        "rotation": {
            "fingerprint": plan.rotation.fingerprint,
            "kind": plan.rotation.kind,
            "hidden_size": plan.rotation.size,
            "source": plan.rotation.source,
        },
        "aux_states": plan.aux.count,
        "changes": plan.summary(),
    }
    verb = "would align" if dry_run else "aligned"
    head = f"{verb} {plan.draft.folder}" + ("" if dry_run else f" to {output}")
    rotation = f"{plan.rotation} (fingerprint {plan.rotation.fingerprint[:12]})"
    show(document, [head, rotation, *plan.summary()], as_json=as_json)
