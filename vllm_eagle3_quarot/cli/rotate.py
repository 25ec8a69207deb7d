# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot rotate``."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_eagle3_quarot.checkpoint.selected_files import whole_folder
from vllm_eagle3_quarot.cli.options import Json, OutputFolder, Overwrite
from vllm_eagle3_quarot.cli.output import progress_bar, reported, show
from vllm_eagle3_quarot.conversion.rotate import plan_rotation, rotate_model
from vllm_eagle3_quarot.rotation.msmodelslim import SEEDS


def rotate_command(
    model: Annotated[
        str,
        typer.Option("--model-path", "--model", help="A float model.", metavar="MODEL"),
    ],
    output: OutputFolder,
    block_size: Annotated[
        int | None,
        typer.Option("--block-size", min=1, help="Rotate in blocks; the whole unless given."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the signs.")] = SEEDS[0],
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Rotate a float model as msModelSlim does, into a float model in its layout with a sidecar.

    For tests and for reproducing reports; the result is not quantised.
    """
    with reported(as_json=as_json):
        plan = plan_rotation(whole_folder(model), block_size, seed)
        with progress_bar("rotating", plan.weight_bytes, as_json=as_json) as progress:
            rotate_model(plan, output, overwrite=overwrite, progress=progress)
        rotation = plan.rotation
        document: dict[str, object] = {
            "output": str(output),
            "tensors": len(plan.rules),
            "rotation": {
                "kind": rotation.kind,
                "hidden_size": rotation.size,
                "fingerprint": rotation.fingerprint,
            },
        }
        lines = [
            f"rotated {plan.tensors.folder} to {output}: {len(plan.rules)} tensors",
            f"{rotation} (fingerprint {rotation.fingerprint[:12]})",
        ]
        show(document, lines, as_json=as_json)
