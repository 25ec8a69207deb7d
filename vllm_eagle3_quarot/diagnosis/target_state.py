# SPDX-License-Identifier: Apache-2.0
"""Is the target's residual stream rotated, is its rotation at hand, and is the target sound?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import read_json_object
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING, TARGET_FINAL_NORM, TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE, TargetFacts
from vllm_eagle3_quarot.diagnosis.findings import Finding, Verdict
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation.rotation import Rotation

RECOVER = (
    "find it with: eagle3-quarot recover --target-model-path {target} --original-model-path "
    "<original model> --write-sidecar (a draft with a copy of the original embedding serves as "
    "well: --draft-model-path)"
)

REQUANTISE = "quantise again from the original model, or download the checkpoint again"

#: transform_config's word for the rotation of the residual stream (SpinQuant).
RESIDUAL_TRANSFORM = "R1"


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
    size = facts.hidden_size
    findings = _incomplete(facts) + _transforms(facts) + _cache(facts)
    rotation: Rotation | None = None
    given = False
    verdict: Verdict
    try:
        file = rotation_file if rotation_file is not None else facts.sidecar
        given = file is not None
        if file is not None:
            rotation = Rotation.from_file(file, hidden_size=size)
    except RotationError as error:
        # A file that is there and of no use is damage; a pointer to no file is a missing one.
        if rotation_file is not None:
            code, remedy, verdict = "rotation-unusable", "give the right file", "rotation-stale"
        elif given:
            code, remedy, verdict = "rotation-unusable", REQUANTISE, "broken-target"
        else:
            code, remedy = "rotation-file-missing", RECOVER.format(target=folder)
            verdict = "rotation-missing"
        findings.append(Finding(code, "error", str(error), remedy, verdict))
        given = True
    rotated = given or _claims_rotation(facts) or _residual_transform(facts) is not None
    if rotated and not given:
        findings.append(
            Finding(
                "rotation-not-exported",
                "error",
                f"{folder}: {_why_rotated(facts)}, but there is no optional/quarot.safetensors; an "
                "Eagle3 draft would get rotated hidden states and nearly every proposal would be "
                "rejected",
                RECOVER.format(target=folder),
                "rotation-missing",
            )
        )
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
    if not rotated:
        findings.append(
            Finding("target-not-rotated", "info", f"{folder}: nothing says that it is rotated")
        )
    return TargetState(facts, rotated, rotation, tuple(findings))


def _claims_rotation(facts: TargetFacts) -> bool:
    claimed = facts.description is not None and facts.description.claims_rotation
    return claimed or facts.final_norm_is_ones


def _why_rotated(facts: TargetFacts) -> str:
    if facts.description is not None and facts.description.claims_rotation:
        return "its description says that its residual stream is rotated"
    if facts.final_norm_is_ones:
        return "its final norm is exactly one everywhere, as left by folding it into the head"
    return "its quantisation_config lists a transform of the residual stream (R1)"


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


def _residual_transform(facts: TargetFacts) -> Mapping[str, object] | None:
    """llm-compressor's record of a rotated residual stream, None when there is none."""
    quantization = _nested(read_json_object(facts.folder / CONFIG_FILE), "quantization_config")
    groups = _nested(_nested(quantization, "transform_config"), "config_groups")
    group = groups.get(RESIDUAL_TRANSFORM)
    if isinstance(group, dict):
        return group
    algorithms = quantization.get("algo_config")
    for algorithm in algorithms if isinstance(algorithms, list) else []:
        named = isinstance(algorithm, dict) and algorithm.get("name") == "rotation"
        if named and algorithm.get("r1") and not algorithm.get("online_r1_rotation"):
            return dict(algorithm)
    return None


def _transforms(facts: TargetFacts) -> list[Finding]:
    group = _residual_transform(facts)
    if group is None or group.get("type") != "random-matrix":
        return []
    return [
        Finding(
            "transform-not-orthogonal",
            "error",
            f"{facts.folder}: transform_config R1 is a 'random-matrix', which is not orthogonal: "
            "the norms of this target see other lengths than the original's",
            "quantise again with 'hadamard' or 'random-hadamard'",
            "broken-target",
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


def layer_count(facts: TargetFacts) -> int | None:
    """Number of the target's layers, None when its configuration does not say."""
    config = read_json_object(facts.folder / CONFIG_FILE)
    value = {**config, **_nested(config, "text_config")}.get("num_hidden_layers")
    return value if type(value) is int else None


def vocabulary(facts: TargetFacts) -> int | None:
    """Size of the target's vocabulary, None when neither file nor table tells."""
    config = read_json_object(facts.folder / CONFIG_FILE)
    value = {**config, **_nested(config, "text_config")}.get("vocab_size")
    if type(value) is int:
        return value
    name = facts.tensors.first_of((*TARGET_EMBEDDING, *TARGET_HEAD))
    return facts.tensors.shape(name)[0] if name is not None else None
