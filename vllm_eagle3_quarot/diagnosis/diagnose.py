# SPDX-License-Identifier: Apache-2.0
"""The whole examination of a pair, and the command to serve it with."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.draft import HEAD
from vllm_eagle3_quarot.checkpoint.selected_files import folder_with_tables, whole_folder
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis.draft_state import DraftState, examine_draft
from vllm_eagle3_quarot.diagnosis.environment import examine_environment, versions
from vllm_eagle3_quarot.diagnosis.findings import (
    GOOD,
    Diagnosis,
    Finding,
    Verdict,
    verdict_of,
)
from vllm_eagle3_quarot.diagnosis.pair_state import examine_original, examine_pair
from vllm_eagle3_quarot.diagnosis.probe_state import ProbeRequest, examine_by_running
from vllm_eagle3_quarot.diagnosis.target_state import TargetState, examine_target
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.settings import SETTINGS_KEY, Settings

SPECULATIVE_TOKENS = 3

#: Findings after which the plugin has to be kept from correcting.
FITS_UNCORRECTED = frozenset({"draft-in-rotated-basis", "probe-agrees-uncorrected"})

#: What was concluded from the looks of weights, and does not stand against a run.
GUESSED = frozenset({"probably-aligned"})

logger = logging.getLogger("vllm.eagle3_quarot")


def diagnose(
    target_model: str,
    draft_model: str,
    original_model: str | None = None,
    rotation_file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    probe: ProbeRequest | None = None,
) -> Diagnosis:
    """Examine the pair; headers and a few rows of the checkpoints are read, all of them to probe.

    Raises:
        CheckpointError: a model cannot be found, or a file of it cannot be read.
    """
    target = examine_target(folder_with_tables(target_model), rotation_file)
    draft = examine_draft(whole_folder(draft_model), target.facts)
    findings = [*target.findings, *draft.findings]
    original = None
    if original_model is not None:
        original = TargetFacts.from_folder(folder_with_tables(original_model))
        findings += examine_original(target, original)
    verified = any(finding.code == "rotation-verified" for finding in findings)
    if not any(finding.verdict == "not-eagle3" for finding in draft.findings):
        findings += examine_pair(target, draft.facts, verified=verified)
    measured = None
    if probe is not None:
        measured, seen = examine_by_running(
            target,
            whole_folder(target_model),
            draft,
            original.folder if original is not None else None,
            findings,
            probe,
        )
        findings = [*_without_guesses(findings, seen), *seen]
    needed = original_model if _needs_final_norm(draft) else None
    settings = _settings(findings, needed, rotation_file)
    if target.rotation is not None and not any(finding.verdict for finding in findings):
        findings += _plugins_view(target, draft, settings)
    installed = versions()
    findings += examine_environment(environment, installed)
    verdict = verdict_of(findings, "ready" if target.rotation is None else "ready-with-plugin")
    return Diagnosis(
        verdict=verdict,
        findings=tuple(findings),
        target=target.document(),
        draft=draft.document(),
        versions=installed,
        serve_command=_serve_command(verdict, target, target_model, draft_model, settings),
        probed=probe is not None,
        agreement=measured,
    )


def _without_guesses(findings: list[Finding], seen: list[Finding]) -> list[Finding]:
    """``findings`` without the guesses that running the pair has answered."""
    if not any(finding.code in ("probe-agrees", *FITS_UNCORRECTED) for finding in seen):
        return findings
    return [finding for finding in findings if finding.code not in GUESSED]


def _needs_final_norm(draft: DraftState) -> bool:
    return not draft.facts.has(HEAD) or (draft.aux is not None and draft.aux.count == 0)


def _settings(
    findings: list[Finding], original_model: str | None, rotation_file: Path | None
) -> dict[str, str]:
    """The plugin's settings that the pair needs."""
    settings: dict[str, str] = {}
    if any(finding.code in FITS_UNCORRECTED for finding in findings):
        return {"mode": "off"}
    if rotation_file is not None:
        settings["rotation"] = str(rotation_file)
    if original_model is not None:
        settings["original_model"] = original_model
    return settings


def _plugins_view(
    target: TargetState, draft: DraftState, settings: Mapping[str, str]
) -> list[Finding]:
    """What the plugin itself will say when it meets the pair."""
    level = logger.level
    logger.setLevel(logging.ERROR)  # its warnings are findings here
    try:
        correction = correction_of(
            target.facts.folder, str(draft.facts.folder), Settings.model_validate(settings)
        )
    except (UnsupportedPairError, RotationError) as error:
        return [
            Finding(
                "plugin-refuses",
                "error",
                str(error),
                "see the message",
                "broken-draft",
            )
        ]
    finally:
        logger.setLevel(level)
    assert correction is not None  # there is a rotation, and mode is not off
    return [Finding("correction", "info", correction.summary())]


def _serve_command(
    verdict: Verdict,
    target: TargetState,
    target_model: str,
    draft_model: str,
    settings: Mapping[str, str],
) -> str | None:
    if verdict not in GOOD:
        return None
    words = ["vllm", "serve", target_model]
    description = target.facts.description
    if description is not None and description.model_quant_type not in (None, "FLOAT"):
        words += ["--quantization", "ascend"]
    speculation = {
        "method": "eagle3",
        "model": draft_model,
        "num_speculative_tokens": SPECULATIVE_TOKENS,
    }
    words += ["--speculative-config", json.dumps(speculation)]
    if settings and verdict != "ready":
        words += ["--additional-config", json.dumps({SETTINGS_KEY: settings})]
    return shlex.join(words)
