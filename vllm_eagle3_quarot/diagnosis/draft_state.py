# SPDX-License-Identifier: Apache-2.0
"""Is this an Eagle3 draft, is it whole, and what does its configuration leave open?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.draft import (
    EMBEDDING,
    HEAD,
    OFFSETS,
    PROJECTION,
    DraftFacts,
)
from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE, TargetFacts, sample_rows
from vllm_eagle3_quarot.diagnosis.findings import Finding
from vllm_eagle3_quarot.diagnosis.target_state import vocabulary
from vllm_eagle3_quarot.draft.aux_states import LAYER_IDS, AuxStates, aux_states_of
from vllm_eagle3_quarot.draft.vocabulary import verify_vocabulary
from vllm_eagle3_quarot.errors import UnsupportedPairError

GET_DRAFT = "get an Eagle3 draft that was made for this very target"

#: Layers whose second one a draft does not have under these names: the marks of a whole model.
SECOND_LAYERS = tuple(
    f"{prefix}layers.3.input_layernorm.weight"
    for prefix in ("model.", "model.language_model.", "language_model.model.", "")
)


@dataclass(frozen=True)
class DraftState:
    """What was found out about a draft, given the target it is to work on.

    Attributes:
        aux: its aux hidden states, None when they make no sense.
        findings: about the draft, and about sizes of the pair.
    """

    facts: DraftFacts
    aux: AuxStates | None
    findings: tuple[Finding, ...]

    def document(self) -> dict[str, object]:
        """As it stands in the JSON output."""
        facts, marker = self.facts, self.facts.alignment
        return {
            "folder": str(facts.folder),
            "hidden_size": facts.config.get("hidden_size"),
            "aux_states": self.aux.count if self.aux is not None else None,
            "layers": list(self.aux.layers) if self.aux is not None and self.aux.layers else None,
            "own_embedding": facts.has(EMBEDDING),
            "own_head": facts.has(HEAD),
            "aligned_to": marker.rotation if marker is not None else None,
            "tensors": len(facts.tensors.files),
        }


def examine_draft(folder: Path, target: TargetFacts) -> DraftState:
    """Look at the draft in ``folder``, as a draft for ``target``.

    Raises:
        CheckpointError: configuration or headers cannot be read.
    """
    facts = DraftFacts(folder)
    findings = _other_kind(facts)
    aux: AuxStates | None = None
    if not findings:
        findings = _sizes(facts, target)
        try:
            aux = aux_states_of(facts, target.hidden_size, target.layer_count)
        except UnsupportedPairError as error:
            if not findings:
                findings.append(_broken("aux-states-contradict", error))
        try:
            verify_vocabulary(facts)
        except UnsupportedPairError as error:
            findings.append(_broken("vocabulary-map-wrong", error))
        findings += _layers(facts, aux, target) + _values(facts) + _notes(facts, target)
    return DraftState(facts, aux, tuple(findings))


def _broken(code: str, error: UnsupportedPairError) -> Finding:
    return Finding(code, "error", str(error), "see the message; else " + GET_DRAFT, "broken-draft")


def _other_kind(facts: DraftFacts) -> list[Finding]:
    names = facts.tensors.files
    kind = facts.config.get("speculators_model_type")
    eagle = as_object(
        facts.config.get("eagle_config") or {}, facts.folder / CONFIG_FILE, "eagle_config"
    )
    post_norm = eagle.get("use_aux_hidden_state") is False
    if any(name in names for name in SECOND_LAYERS) and not facts.has(PROJECTION):
        layers = facts.config.get("num_hidden_layers")
        message = (
            f"{facts.folder}: this is a whole model ({layers} layers, no 'fc'), not a draft; was "
            "the target given as the draft (vllm-project/vllm-ascend#17075)?"
        )
    elif kind is not None and kind != "eagle3":
        message = f"{facts.folder}: this is a draft of the method '{kind}', not Eagle3"
    elif not facts.has(PROJECTION) and not post_norm:
        seen = ", ".join(sorted(names)[:8]) or "none"
        message = (
            f"{facts.folder}: no 'fc.weight', through which an Eagle3 draft takes aux hidden "
            f"states (tensors seen: {seen}); is it a draft of another method (DFlash, DSpark, MTP)?"
        )
    else:
        return []
    return [Finding("not-eagle3", "error", message, GET_DRAFT, "not-eagle3")]


def _sizes(facts: DraftFacts, target: TargetFacts) -> list[Finding]:
    findings = []
    width = facts.target_width
    if width != target.hidden_size:
        findings.append(
            Finding(
                "hidden-size-mismatch",
                "error",
                f"the draft was made for hidden states of {width} channels, the target has "
                f"{target.hidden_size}",
                GET_DRAFT,
                "mismatched-pair",
            )
        )
    words, draft_words = vocabulary(target), facts.vocabulary
    if words is not None and draft_words is not None and words != draft_words:
        findings.append(
            Finding(
                "vocabulary-mismatch",
                "error",
                f"the draft was made for a vocabulary of {draft_words} words, the target has "
                f"{words}; ids would stand for other words",
                GET_DRAFT,
                "mismatched-pair",
            )
        )
    return findings


def _layers(facts: DraftFacts, aux: AuxStates | None, target: TargetFacts) -> list[Finding]:
    count = target.layer_count
    if aux is None or aux.count == 0 or count is None:
        return []
    if aux.layers is None:
        return [
            Finding(
                "layer-ids-defaulted",
                "warning",
                f"{facts.folder / CONFIG_FILE} names no '{LAYER_IDS}'; the engine will take layers "
                f"{aux.default}. A draft trained on others drafts badly on any target "
                "(vllm-project/vllm#50170)",
                f"if its card names other layers, add them as '{LAYER_IDS}'",
            )
        ]
    outside = [layer for layer in aux.layers if not 0 <= layer <= count]
    if outside:
        return [
            Finding(
                "layer-ids-outside",
                "error",
                f"{facts.folder / CONFIG_FILE}: '{LAYER_IDS}' names layer {outside[0]}, the target "
                f"has {count}",
                GET_DRAFT,
                "mismatched-pair",
            )
        ]
    return []


def _values(facts: DraftFacts) -> list[Finding]:
    for role in (PROJECTION, EMBEDDING, HEAD):
        name = facts.name_of(role)
        if name is None:
            continue
        shape = facts.tensors.shape(name)
        if len(shape) != 2 or 0 in shape:
            return [
                Finding(
                    "tensor-shape-wrong",
                    "error",
                    f"{facts.folder}: '{name}' has shape {shape} where a matrix is expected",
                    "download the draft again",
                    "broken-draft",
                )
            ]
        rows = facts.tensors.read_rows(name, sample_rows(shape[0]))
        if rows.is_floating_point() and not bool(torch.isfinite(rows.float()).all()):
            return [
                Finding(
                    "values-not-finite",
                    "error",
                    f"{facts.folder}: '{name}' has NaN or infinite values",
                    "download the draft again",
                    "broken-draft",
                )
            ]
    return []


def _notes(facts: DraftFacts, target: TargetFacts) -> list[Finding]:
    findings = []
    verifier = as_object(
        as_object(
            facts.config.get("speculators_config") or {},
            facts.folder / CONFIG_FILE,
            "speculators_config",
        ).get("verifier")
        or {},
        facts.folder / CONFIG_FILE,
        "speculators_config.verifier",
    )
    recorded = verifier.get("name_or_path")
    if isinstance(recorded, str) and recorded:
        findings.append(
            Finding(
                "recorded-verifier",
                "info",
                f"the draft was made for '{recorded}'; compare with {target.folder}",
            )
        )
    if facts.config.get("quantization_config") is not None:
        findings.append(
            Finding(
                "draft-quantised",
                "info",
                "the draft is quantised; the runtime path corrects it, folding offline does not",
            )
        )
    if not facts.has(OFFSETS) and facts.draft_vocabulary == facts.vocabulary:
        findings.append(Finding("full-vocabulary", "info", "the draft's head has all words"))
    return findings
