# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vllm_eagle3_quarot.cli.options import (
    DraftModel,
    Json,
    OriginalModel,
    RotationFile,
    TargetModel,
)
from vllm_eagle3_quarot.cli.output import REFUSED, progress_bar, reported, show
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.diagnosis.findings import GOOD, Diagnosis
from vllm_eagle3_quarot.diagnosis.probe_state import ProbeRequest
from vllm_eagle3_quarot.errors import CheckpointError

#: Steps of the progress bar for a whole probe.
STEPS = 1000

STYLES: Mapping[str, str] = {"error": "bold red", "warning": "yellow", "info": "dim"}


def doctor_command(
    target_model: TargetModel,
    draft_model: DraftModel,
    original_model: OriginalModel = None,
    rotation_file: RotationFile = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Run both on a few prompts as well: small models, on the CPU, with transformers.",
        ),
    ] = False,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            help="Prompts to probe with, one per line, instead of built-in ones.",
            metavar="FILE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell from files whether a target and a draft will work together, and how to serve them.

    Exit code 0: ready, ready-with-plugin or already-aligned; 1: anything else; 2: unreadable input.
    """
    with reported(as_json=as_json):
        if probe:
            texts = _prompts(prompts)
            with progress_bar("probing", STEPS, as_json=as_json, in_bytes=False) as advance:
                request = ProbeRequest(texts, lambda share: advance(share * STEPS))
                diagnosis = diagnose(
                    target_model, draft_model, original_model, rotation_file, probe=request
                )
        else:
            diagnosis = diagnose(target_model, draft_model, original_model, rotation_file)
        if as_json:
            show(diagnosis.document(), [], as_json=True)
        else:
            _show(diagnosis)
        if diagnosis.verdict not in GOOD:
            raise typer.Exit(REFUSED)


def _prompts(file: Path | None) -> list[str] | None:
    if file is None:
        return None
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} cannot be read as text: {error}") from error
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise CheckpointError(f"{file} has no prompts; it should have one on every line")
    return texts


def _show(diagnosis: Diagnosis) -> None:
    console = Console(soft_wrap=True, highlight=False)
    good = diagnosis.verdict in GOOD
    console.print(f"[{'bold green' if good else 'bold red'}]{diagnosis.verdict}[/]")
    order = list(STYLES)
    for finding in sorted(diagnosis.findings, key=lambda each: order.index(each.severity)):
        style = STYLES[finding.severity]
        console.print(f"[{style}]{finding.severity:7} {finding.code}[/]  {escape(finding.message)}")
        if finding.remedy:
            console.print(f"        -> {escape(finding.remedy)}")
    if diagnosis.serve_command is not None:
        console.print(f"\nserve with:\n  {escape(diagnosis.serve_command)}")
