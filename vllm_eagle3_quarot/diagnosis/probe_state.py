# SPDX-License-Identifier: Apache-2.0
"""What running a pair shows: the basis in which its draft is at home."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis.draft_state import DraftState
from vllm_eagle3_quarot.diagnosis.findings import Finding
from vllm_eagle3_quarot.diagnosis.target_state import RECOVER, TargetState
from vllm_eagle3_quarot.errors import ProbeError, QuaRotError
from vllm_eagle3_quarot.probe.agreement import (
    IDENTITY,
    ROTATION,
    TRANSPOSED,
    Agreement,
    measure_agreement,
)

#: Share of first proposals above which a draft reads its states. Working drafts reach 0.5 … 0.99;
#: reports of a rotation that nobody undid name 0 … 0.07 (vllm-project/vllm-ascend#7038).
AT_HOME = 0.25

#: Findings after which there is no pair to run.
NO_PAIR = frozenset({"not-eagle3", "mismatched-pair", "broken-draft"})

IN_WORDS = {
    ROTATION: "un-rotated with Q",
    TRANSPOSED: "with its transpose",
    IDENTITY: "as they are",
}


@dataclass(frozen=True)
class ProbeRequest:
    """That the pair is to be run, and on what.

    Attributes:
        prompts: texts to continue as they stand; None for built-in questions.
        progress: called with the share of the work that is done.
    """

    prompts: Sequence[str] | None = None
    progress: Callable[[float], None] = lambda share: None


def examine_by_running(
    target: TargetState,
    folder: Path,
    draft: DraftState,
    original: Path | None,
    so_far: Sequence[Finding],
    request: ProbeRequest,
) -> tuple[Agreement | None, list[Finding]]:
    """Run the pair and say what its agreement means; ``folder`` has all of the target's weights.

    Raises:
        CheckpointError: a file is broken.
    """
    obstacle = next((each for each in so_far if each.verdict in NO_PAIR), None)
    try:
        if obstacle is not None or draft.aux is None:
            code = obstacle.code if obstacle is not None else "aux-states-contradict"
            raise ProbeError(f"the draft does not fit the target ({code})")
        measured = measure_agreement(
            TargetFacts.from_folder(folder),
            draft.facts,
            draft.aux,
            target.rotation,
            original=original,
            prompts=request.prompts,
            progress=request.progress,
        )
    except ProbeError as error:
        return None, [_not_run(str(error))]
    except QuaRotError:
        raise
    # Shapes and numbers of strangers meet in torch's and transformers' arithmetic, which raises
    # whatever it raises; that they cannot be run is an answer.
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        return None, [_not_run(f"{type(error).__name__}: {first}")]
    return measured, [_meaning(measured, target)]


def _not_run(reason: str) -> Finding:
    return Finding(
        "probe-not-run",
        "warning",
        f"the pair was not run: {reason}",
        "what was told from the files stands without it",
    )


def _meaning(measured: Agreement, target: TargetState) -> Finding:
    shares = measured.shares
    numbers = ", ".join(f"{share:.3f} {IN_WORDS[basis]}" for basis, share in shares.items())
    seen = (
        f"the draft's first proposal is the target's next token at these shares of "
        f"{measured.positions} positions, hidden states taken: {numbers}"
    )
    best = max(shares, key=lambda basis: shares[basis])
    if shares[best] < AT_HOME:
        return Finding(
            "probe-agrees-nowhere",
            "warning",
            f"{seen}. It is at home in none of these",
            _elsewhere(target),
            "unknown",
        )
    if best == TRANSPOSED:
        assert target.rotation is not None
        return Finding(
            "probe-agrees-transposed",
            "error",
            f"{seen}. {target.rotation.source} holds the transpose of the target's rotation",
            "transpose the file's matrix, or " + RECOVER.format(target=target.facts.folder),
            "rotation-stale",
        )
    if best == IDENTITY and target.rotation is not None:
        return Finding(
            "probe-agrees-uncorrected",
            "warning",
            f"{seen}. The draft takes the target's states as they are: it was aligned to, or "
            "trained on, this target, or this target is not rotated",
            "serve it uncorrected",
            "already-aligned",
        )
    return Finding("probe-agrees", "info", seen)


def _elsewhere(target: TargetState) -> str:
    if target.rotation is None and target.rotated:
        return RECOVER.format(target=target.facts.folder)
    return (
        "suspect another target, other layers than the draft was trained on, another vocabulary "
        "map, a rotation of which nothing is known here (pass --original-model), or prompts in a "
        "language or form that the draft never saw (--prompts)"
    )
