# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot doctor``."""

from __future__ import annotations

from collections.abc import Mapping

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
from vllm_eagle3_quarot.cli.output import REFUSED, reported, show
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.diagnosis.findings import GOOD, Diagnosis

STYLES: Mapping[str, str] = {"error": "bold red", "warning": "yellow", "info": "dim"}


def doctor_command(
    target_model: TargetModel,
    draft_model: DraftModel,
    original_model: OriginalModel = None,
    rotation_file: RotationFile = None,
    as_json: Json = False,
) -> None:
    """Tell from files alone whether a target and a draft will work together, and how to serve them.

    Exit code 0: ready, ready-with-plugin or already-aligned; 1: anything else; 2: unreadable input.
    """
    with reported(as_json=as_json):
        diagnosis = diagnose(target_model, draft_model, original_model, rotation_file)
        if as_json:
            show(diagnosis.document(), [], as_json=True)
        else:
            _show(diagnosis)
        if diagnosis.verdict not in GOOD:
            raise typer.Exit(REFUSED)


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
