# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot recover``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from vllm_eagle3_quarot import __version__
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.selected_files import folder_with_tables, whole_folder
from vllm_eagle3_quarot.checkpoint.sidecar import SIDECAR_FILE
from vllm_eagle3_quarot.checkpoint.sidecar_output import write_rotation
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.cli.options import (
    Json,
    OptionalDraftModel,
    OriginalModel,
    Overwrite,
    TargetModel,
)
from vllm_eagle3_quarot.cli.output import progress_bar, reported, show
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.recovery.recover import Recovered, recover
from vllm_eagle3_quarot.recovery.tables import TablePair, pairs_of_draft, pairs_of_original

#: Steps of the progress bar for the whole of the dense fit.
STEPS = 1000


def recover_command(
    target_model: TargetModel,
    original_model: OriginalModel = None,
    draft_model: OptionalDraftModel = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="File to write the rotation to.", metavar="FILE"),
    ] = None,
    write_sidecar: Annotated[
        bool,
        typer.Option("--write-sidecar", help=f"Write it into the target as {SIDECAR_FILE}."),
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Find the rotation of a target that does not bring it.

    Needs the original model, or a draft with its own copy of the original token embedding. The
    result is checked against the tables; without one that explains them nothing is written.
    """
    if (original_model is None) == (draft_model is None):
        raise typer.BadParameter("pass one of --original-model-path and --draft-model-path")
    with reported(as_json=as_json):
        target = TargetFacts.from_folder(folder_with_tables(target_model))
        if write_sidecar and not Path(target_model).is_dir():
            raise CheckpointError(
                f"'{target_model}' is a hub id; a file in the hub's cache would be lost with it. "
                "Write the rotation with --output, and pass it with the setting 'rotation'"
            )
        pairs = _pairs(target, original_model, draft_model)
        with progress_bar("fitting", STEPS, as_json=as_json, in_bytes=False) as advance:
            result = recover(target, pairs, _in_steps(advance))
        files = [output] if output is not None else []
        files += [target.folder / SIDECAR_FILE] if write_sidecar else []
        metadata = {"source": result.how, "tool": f"vllm-eagle3-quarot {__version__}"}
        for file in files:
            rotation = result.rotation
            groups = rotation.row_groups()
            write_rotation(file, rotation.size, groups, metadata, overwrite=overwrite)
        _show(result, files, as_json=as_json)


def _pairs(
    target: TargetFacts, original_model: str | None, draft_model: str | None
) -> list[TablePair]:
    if original_model is not None:
        return pairs_of_original(
            target, TargetFacts.from_folder(folder_with_tables(original_model))
        )
    assert draft_model is not None
    return pairs_of_draft(target, DraftFacts(whole_folder(draft_model)))


def _in_steps(advance: Callable[[float], None]) -> Callable[[float], None]:
    return lambda share: advance(share * STEPS)


def _show(result: Recovered, files: list[Path], *, as_json: bool) -> None:
    rotation, fit = result.rotation, result.fit
    document: dict[str, object] = {
        "rotation": {
            "kind": rotation.kind,
            "hidden_size": rotation.size,
            "fingerprint": rotation.fingerprint,
            "block": rotation.structure.block if rotation.structure is not None else None,
        },
        "how": result.how,
        "centred": result.centred,
        "fit": asdict(fit),
        "written": [str(file) for file in files],
    }
    lines = [
        f"{rotation} (fingerprint {rotation.fingerprint[:12]})",
        f"how           {result.how}",
        f"residual      {fit.residual:.2e} over {fit.rows} rows",
        f"min cosine    {fit.min_cosine:.6f}",
        f"orthogonality {fit.orthogonality:.1e}",
    ]
    if result.centred:
        lines.append(
            "the original table was centred before rotating: the target itself differs from it"
        )
    lines += [f"written to    {file}" for file in files]
    show(document, lines, as_json=as_json)
