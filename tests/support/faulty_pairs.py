# SPDX-License-Identifier: Apache-2.0
"""Pairs on disk that show one fault each, and the diagnosis of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import embedding, write_json, write_target
from tests.support.drafts import DraftSpec
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.diagnosis.findings import Diagnosis
from vllm_eagle3_quarot.rotation import Rotation

Q = real_rotation(96)

#: Writes a pair below a folder: target and draft.
Builder = Callable[[Path], tuple[Path, Path]]

#: Name to builder, verdict, and a code that is among the findings.
Cases = dict[str, tuple[Builder, str, str]]


def target_of(folder: Path, q: torch.Tensor | None = Q, **changes: Any) -> Path:
    return write_target(folder / "target", q, **{"hidden": 96, **changes})


def draft_of(folder: Path, table: torch.Tensor | None = None, **changes: Any) -> Path:
    spec = DraftSpec(**{"hidden": 96, **changes})
    if table is None and spec.own_embedding:
        table = embedding(spec.vocabulary, spec.hidden)
    return spec.write(folder / "draft", table)


def aligned(folder: Path, target: Path, draft: Path) -> Path:
    rotation = Rotation.from_checkpoint(target)
    plan = plan_alignment(DraftFacts(draft), TargetFacts.from_folder(target), rotation)
    align(plan, folder / "aligned")
    return folder / "aligned"


def change(folder: Path, **tensors: torch.Tensor | None) -> Path:
    stored = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        stored.pop(name.replace("__", "."))
        if value is not None:
            stored[name.replace("__", ".")] = value.contiguous()
    save_file(stored, folder / "model.safetensors")
    return folder


def configure(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    write_json(path, {**json.loads(path.read_text()), **changes})
    return folder


def diagnosed(target: Path, draft: Path, original: Path | None = None, **more: Any) -> Diagnosis:
    return diagnose(str(target), str(draft), str(original) if original else None, **more)


def codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]


def check_verdict(folder: Path, build: Builder, verdict: str, code: str) -> None:
    """Diagnose what ``build`` writes, and hold every finding to the form of one."""
    target, draft = build(folder)
    diagnosis = diagnosed(target, draft)
    assert diagnosis.verdict == verdict, diagnosis.findings
    assert code in [finding.code for finding in diagnosis.findings]
    good = verdict in ("ready", "ready-with-plugin", "already-aligned")
    assert (diagnosis.serve_command is not None) is good
    for finding in diagnosis.findings:
        assert finding.remedy or finding.severity == "info"
        assert "\n" not in finding.message
