# SPDX-License-Identifier: Apache-2.0
"""Do the rotation, the target's tables and the draft's belong together? Told by numbers.

An orthogonal matrix keeps lengths and angles of rows, so ``E E^T = E' E'^T`` tells whether *any* of
them relates two tables; which one, if at hand, is asked of a few rows.
"""

from __future__ import annotations

import torch

from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, PROJECTION, DraftFacts
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.target import TargetFacts, sample_rows
from vllm_eagle3_quarot.diagnosis.findings import Finding
from vllm_eagle3_quarot.diagnosis.rows import mean_cosine, same_angles, same_rows, spread
from vllm_eagle3_quarot.diagnosis.target_state import RECOVER, REQUANTISE, TargetState
from vllm_eagle3_quarot.draft.verification import Relation, relation
from vllm_eagle3_quarot.rotation.rotation import Rotation

#: Mean cosine above which a row is the same row.
SAME_ROWS = 0.9

#: How much more the column lengths of ``fc`` have to spread after taking ``Q`` out of it for it to
#: look aligned. Hidden states have channels of very different size, to which a trained ``fc``
#: answers; mixing the channels evens that out.
ALIGNED_SPREAD = 1.5

#: Rows of ``fc`` that are looked at.
PROJECTION_ROWS = 512

SERVE_UNCORRECTED = (
    'serve it with --additional-config \'{"eagle3_quarot": {"mode": "off"}}\', or take the '
    "original draft"
)


def examine_original(target: TargetState, original: TargetFacts) -> list[Finding]:
    """Compare the target's embedding with that of the model that it was made from.

    Raises:
        CheckpointError: headers cannot be read.
    """
    rows = same_rows(target.facts, original.tensors, original.tensors.first_of(TARGET_EMBEDDING))
    if rows is None:
        return [
            Finding(
                "original-not-comparable",
                "error",
                f"{original.folder} has no token embedding of the same shape as the target's",
                "pass the model from which this target was quantised",
                "unknown",
            )
        ]
    stored, own = rows
    findings = _explained(target, stored, own, "the original model's", f"{original.folder}")
    if any(finding.verdict for finding in findings) or same_angles(stored, own):
        return findings
    return [
        Finding(
            "tables-not-related",
            "error",
            f"no orthogonal matrix relates the target's token embedding to that of "
            f"{original.folder}: lengths or angles of rows differ. Either the original is another "
            "model, or the target was damaged while it was made",
            "check that the original is the right one; if it is: " + REQUANTISE,
            "broken-target",
        )
    ]


def examine_pair(target: TargetState, draft: DraftFacts, *, verified: bool) -> list[Finding]:
    """Compare the draft's own tables and projection with the target.

    ``verified``: the original model has shown that the rotation is the target's.

    Raises:
        CheckpointError: headers cannot be read.
    """
    findings = _marker(target, draft)
    if findings:
        return findings
    rows = same_rows(target.facts, draft.tensors, draft.name_of(EMBEDDING))
    if rows is not None:
        findings = _of_draft_table(target, *rows, draft)
    if target.rotation is None:
        return findings
    if rows is None and not verified:
        findings.append(
            Finding(
                "rotation-not-verified",
                "info",
                "the draft has no token embedding of its own to verify the rotation with",
                "pass --original-model to have it verified",
            )
        )
    if not any(finding.verdict for finding in findings):
        findings += _of_projection(draft, target.rotation)
    return findings


def _marker(target: TargetState, draft: DraftFacts) -> list[Finding]:
    marker = draft.alignment
    if marker is None:
        return []
    if target.rotation is not None and target.rotation.fingerprint == marker.rotation:
        return [
            Finding(
                "aligned",
                "info",
                f"the draft was aligned offline to this target's rotation (version {marker.tool}); "
                "the plugin leaves it alone",
                "serve it as it is",
                "already-aligned",
            )
        ]
    if target.rotation is None and target.rotated:
        return []  # what the target lacks is said already
    there = "the target is not rotated"
    if target.rotation is not None:
        there = f"the target's is {target.rotation.fingerprint[:12]}"
    return [
        Finding(
            "aligned-to-another",
            "error",
            f"the draft was aligned offline to the rotation {marker.rotation[:12]}, but {there}",
            "use the original draft, or align that one to this target",
            "mismatched-pair",
        )
    ]


def _of_draft_table(
    target: TargetState, stored: torch.Tensor, own: torch.Tensor, draft: DraftFacts
) -> list[Finding]:
    rotation = target.rotation
    if rotation is not None:
        twice = rotation.unrotate(rotation.unrotate(stored.float()))
        if mean_cosine(twice, own) > SAME_ROWS:
            return [
                Finding(
                    "table-unrotated-twice",
                    "error",
                    f"{draft.folder}: the draft's token embedding is the target's with the "
                    "rotation taken out twice",
                    "use the original draft",
                    "corrected-twice",
                )
            ]
        # Norms of ones are left behind by rotating only; without them the target is the original.
        rotated = target.facts.final_norm_is_ones
        if rotated and relation(stored, own, rotation) is Relation.IDENTICAL:
            return [
                Finding(
                    "draft-in-rotated-basis",
                    "warning",
                    f"{draft.folder}: the draft's token embedding equals the rotated target's: it "
                    "was trained on the rotated target, or aligned to it by another tool",
                    SERVE_UNCORRECTED,
                    "already-aligned",
                )
            ]
    return _explained(target, stored, own, "the draft's", f"{draft.folder}")


def _explained(
    target: TargetState, stored: torch.Tensor, own: torch.Tensor, whose: str, where: str
) -> list[Finding]:
    """What ``own``, rows of the original embedding by all appearance, says about the rotation."""
    folder = target.facts.folder
    if target.rotation is None:
        if target.rotated or mean_cosine(stored, own) > SAME_ROWS:
            return []
        if same_angles(stored, own):
            return [
                Finding(
                    "rotated-without-a-word",
                    "error",
                    f"{folder} says nothing of a rotation, but its token embedding is {whose} "
                    f"({where}) turned by an orthogonal matrix",
                    RECOVER.format(target=folder),
                    "rotation-missing",
                )
            ]
        return [_unrelated(whose, where)]
    answer = relation(stored, own, target.rotation)
    if answer is Relation.MATCHES:
        return [
            Finding(
                "rotation-verified",
                "info",
                f"the rotation maps {whose} token embedding ({where}) to the target's",
            )
        ]
    if answer is Relation.TRANSPOSED:
        message = (
            f"{target.rotation.source} holds the transpose of the target's rotation: with Q, not "
            f"with its transpose, the target's token embedding becomes {whose} ({where})"
        )
        return [
            Finding(
                "rotation-transposed",
                "error",
                message,
                "transpose the file's matrix, or " + RECOVER.format(target=folder),
                "rotation-stale",
            )
        ]
    if answer is Relation.IDENTICAL:
        return [
            Finding(
                "rotation-without-rotated-tables",
                "error",
                f"the target's token embedding is {whose} ({where}) as it is, so this target is "
                f"not rotated, but {target.rotation.source} says so",
                "remove the rotation file, or get the rotated target that it belongs to",
                "rotation-stale",
            )
        ]
    if answer is Relation.OTHER_ROTATION or same_angles(stored, own):
        return [
            Finding(
                "rotation-stale",
                "error",
                f"{target.rotation.source} is not the rotation of {folder}: an orthogonal matrix "
                f"maps {whose} token embedding ({where}) to the target's, but another one",
                RECOVER.format(target=folder),
                "rotation-stale",
            )
        ]
    return [_unrelated(whose, where)]


def _unrelated(whose: str, where: str) -> Finding:
    return Finding(
        "embedding-unrelated",
        "warning",
        f"{whose} token embedding ({where}) is unrelated to the target's: never trained (the "
        "plugin replaces a random one, TorchSpec#38), trained by itself, or of another model",
        "if acceptance stays near 0, suspect the draft",
    )


def _of_projection(draft: DraftFacts, rotation: Rotation) -> list[Finding]:
    name = draft.name_of(PROJECTION)
    if name is None or draft.config.get("quantization_config") is not None:
        return []
    shape = draft.tensors.shape(name)
    rows = draft.tensors.read_rows(name, sample_rows(shape[0], PROJECTION_ROWS))
    slices = rows.float().reshape(-1, rotation.size)
    stored, turned = spread(slices), spread(rotation.unrotate(slices))
    if turned < ALIGNED_SPREAD * stored:
        return []
    return [
        Finding(
            "probably-aligned",
            "warning",
            f"{draft.folder}: the draft is probably aligned to this target by another tool: column "
            f"lengths of '{name}' spread by {stored:.3f}, and by {turned:.3f} once the rotation is "
            "taken out, which is how it looks after folding. Only the original draft could tell "
            "for certain",
            "compare with the original draft; if it is aligned: " + SERVE_UNCORRECTED,
            "unknown",
        )
    ]
