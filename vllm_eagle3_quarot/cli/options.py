# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have, under the same names everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TargetModel = Annotated[
    str,
    typer.Option(
        "--target-model-path",
        "--target",
        help="The rotated target: a folder or a hub id.",
        metavar="MODEL",
    ),
]

DraftModel = Annotated[
    str,
    typer.Option("--draft-model-path", "--draft", help="The Eagle3 draft.", metavar="MODEL"),
]

OptionalDraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft-model-path",
        "--draft",
        help="A draft that brings a copy of the original embedding.",
        metavar="MODEL",
    ),
]

OriginalModel = Annotated[
    str | None,
    typer.Option(
        "--original-model-path",
        "--original-model",
        help="The model from which the target was rotated; only its tables and norm are read.",
        metavar="MODEL",
    ),
]

RotationFile = Annotated[
    Path | None,
    typer.Option(
        "--rotation",
        help="File with the rotation, for a target that does not bring its own.",
        metavar="FILE",
    ),
]

OutputFolder = Annotated[
    Path,
    typer.Option("--output-dir", help="The folder to write.", metavar="FOLDER"),
]

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
