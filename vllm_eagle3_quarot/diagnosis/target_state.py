# SPDX-License-Identifier: Apache-2.0
"""Is the target's residual stream rotated, is its rotation at hand, and is the target sound?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import read_json_object
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING, TARGET_FINAL_NORM, TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.recorded_rotation import ResidualRotation
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE, TargetFacts
from vllm_eagle3_quarot.diagnosis.findings import Finding, Verdict
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation.rebuilding import rebuild
from vllm_eagle3_quarot.rotation.rotation import Rotation

RECOVER = (
    "find it with: eagle3-quarot recover --target-model-path {target} --original-model-path "
    "<original model> --write-sidecar (a draft with a copy of the original embedding serves as "
    "well: --draft-model-path)"
)

REQUANTISE = "quantise again from the original model, or download the checkpoint again"


@dataclass(frozen=True)
class TargetState:
    """What was found out about a target.

    Attributes:
        rotated: by its own account, before any table was compared.
        rotation: ``Q`` when it is at hand and sound.
        findings: about the target alone.
    """

    facts: TargetFacts
    rotated: bool
    rotation: Rotation | None
    findings: tuple[Finding, ...]

    def document(self) -> dict[str, object]:
        """As it stands in the JSON output."""
        facts, description = self.facts, self.facts.description
        rotation = None
        if self.rotation is not None:
            rotation = {
                "kind": self.rotation.kind,
                "fingerprint": self.rotation.fingerprint,
                "source": self.rotation.source,
            }
        return {
            "folder": str(facts.folder),
            "hidden_size": facts.hidden_size,
            "rotated": self.rotated,
            "rotation": rotation,
            "quantisation": description.model_quant_type if description is not None else None,
            "tensors": len(facts.tensors.files),
        }


def examine_target(folder: Path, rotation_file: Path | None) -> TargetState:
    """Look at the target in ``folder``; ``rotation_file`` takes the place of its own.

    Raises:
        CheckpointError: configuration, description or headers cannot be read.
    """
    facts = TargetFacts.from_folder(folder)
    _ = facts.hidden_size  # without it nothing can be said
    findings = _incomplete(facts) + _cache(facts)
    rotation, rotated, about = _rotation(facts, rotation_file)
    findings += about
    if rotated and facts.head_equals_embedding:
        findings.append(
            Finding(
                "tied-tables-rotated",
                "error",
                f"{folder}: embedding and head of this rotated target are one table, so the final "
                "norm's scale went into the embedding as well and the target itself is damaged",
                "quantise again from a copy with separate tables (tie_word_embeddings: false)",
                "broken-target",
            )
        )
    return TargetState(facts, rotated, rotation, tuple(findings))


def _rotation(
    facts: TargetFacts, given: Path | None
) -> tuple[Rotation | None, bool, list[Finding]]:
    """``Q`` if it is at hand, whether the target says it is rotated, and what there is to say."""
    try:
        file = given if given is not None else facts.sidecar
    except RotationError as error:
        remedy = RECOVER.format(target=facts.folder)
        return None, True, [_missing("rotation-file-missing", str(error), remedy)]
    if file is not None:
        return _of_file(facts, file, given=given is not None)
    recorded = facts.recorded_rotations
    if recorded is not None and recorded.residual is not None:
        return _of_record(facts, recorded.residual)
    if recorded is not None:
        message = f"{facts.folder}: the rotations by {recorded.tool} stay inside layers"
        return None, False, [Finding("target-not-rotated", "info", message)]
    claimed = facts.description is not None and facts.description.claims_rotation
    if not claimed and not facts.final_norm_is_ones:
        message = f"{facts.folder}: nothing says that it is rotated"
        return None, False, [Finding("target-not-rotated", "info", message)]
    why = "its final norm is exactly one everywhere, as left by folding it into the head"
    if claimed:
        why = "its description says that its residual stream is rotated"
    message = (
        f"{facts.folder}: {why}, but there is no optional/quarot.safetensors; an Eagle3 draft "
        "would get rotated hidden states and nearly every proposal would be rejected"
    )
    remedy = RECOVER.format(target=facts.folder)
    return None, True, [_missing("rotation-not-exported", message, remedy)]


def _of_file(
    facts: TargetFacts, file: Path, *, given: bool
) -> tuple[Rotation | None, bool, list[Finding]]:
    try:
        return Rotation.from_file(file, hidden_size=facts.hidden_size), True, []
    except RotationError as error:
        # A file of the target's that is there and of no use is damage of the target.
        verdict: Verdict = "rotation-stale" if given else "broken-target"
        remedy = "give the right file" if given else REQUANTISE
        unusable = Finding("rotation-unusable", "error", str(error), remedy, verdict)
        return None, True, [unusable]


def _of_record(
    facts: TargetFacts, residual: ResidualRotation
) -> tuple[Rotation | None, bool, list[Finding]]:
    try:
        return rebuild(residual, facts.hidden_size, facts.folder), True, []
    except RotationError as error:
        if residual.is_orthogonal:
            remedy = RECOVER.format(target=facts.folder)
            return None, True, [_missing("rotation-not-exported", str(error), remedy)]
        damaged = Finding(
            "transform-not-orthogonal", "error", str(error), REQUANTISE, "broken-target"
        )
        return None, True, [damaged]


def _missing(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "error", message, remedy, "rotation-missing")


def _incomplete(facts: TargetFacts) -> list[Finding]:
    missing = [
        what
        for what, names in (
            ("token embedding", TARGET_EMBEDDING),
            ("final norm", TARGET_FINAL_NORM),
        )
        if facts.tensors.first_of(names) is None
    ]
    if not missing:
        return []
    seen = ", ".join(sorted(facts.tensors.files)[:6]) or "none"
    return [
        Finding(
            "target-tables-unknown",
            "warning",
            f"{facts.folder}: no {' and no '.join(missing)} under a known name (tensors seen: "
            f"{seen}), so less can be told from numbers",
            "check that this is the folder of the target, with its weights",
        )
    ]


def _cache(facts: TargetFacts) -> list[Finding]:
    path = facts.folder / "quant_model_description.json"
    document = read_json_object(path) if path.exists() else {}
    values = {str(document.get(key)) for key in ("kv_cache_type", "kv_quant_type")}
    kinds = values - {"None", "", "FLOAT"}
    if not kinds:
        return []
    return [
        Finding(
            "kv-cache-quantised",
            "warning",
            f"{path}: the KV cache is quantised ({', '.join(sorted(kinds))}); vllm-ascend does "
            "not run Eagle3 with it on every model (vllm-project/vllm-ascend#12956)",
            "use an export without KV cache quantisation",
        )
    ]


def _nested(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def vocabulary(facts: TargetFacts) -> int | None:
    """Size of the target's vocabulary, None when neither file nor table tells."""
    config = read_json_object(facts.folder / CONFIG_FILE)
    value = {**config, **_nested(config, "text_config")}.get("vocab_size")
    if type(value) is int:
        return value
    name = facts.tensors.first_of((*TARGET_EMBEDDING, *TARGET_HEAD))
    return facts.tensors.shape(name)[0] if name is not None else None
