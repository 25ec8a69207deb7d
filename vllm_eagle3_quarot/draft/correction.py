# SPDX-License-Identifier: Apache-2.0
"""What has to be corrected for one draft on one target: decided once, from files and settings.

Everything is decided before a weight is loaded, and from files alone, so that every rank of a
parallel engine comes to the same answer and a pair that cannot work is refused early.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vllm_eagle3_quarot.checkpoint.draft import HEAD, DraftFacts
from vllm_eagle3_quarot.checkpoint.folder import model_folder
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.aux_states import AuxStates, aux_states_of, verify_width
from vllm_eagle3_quarot.draft.copied_embedding import CopiedEmbedding
from vllm_eagle3_quarot.draft.embedding import Choice, choose_embedding
from vllm_eagle3_quarot.draft.final_norm import FinalNorm, find_final_norm
from vllm_eagle3_quarot.draft.target_rotation import rotation_of
from vllm_eagle3_quarot.draft.torch_defaults import fp32_on_the_cpu
from vllm_eagle3_quarot.draft.vocabulary import verify_vocabulary
from vllm_eagle3_quarot.draft.witness import confirm
from vllm_eagle3_quarot.errors import CheckpointError, QuaRotError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.settings import Settings

logger = logging.getLogger("vllm.eagle3_quarot")

HeadChoice = Literal["own", "shared", "restored"]


@dataclass(frozen=True)
class Correction:
    """How the inputs and the output of a draft are taken out of the target's rotated basis.

    Attributes:
        mode: ``runtime``: aux hidden states are un-rotated on every step; ``fold``: the draft's
            projection takes them as they are; ``aligned``: so it did before, in a draft that was
            aligned offline to this rotation.
        target: folder of the target.
        draft: folder of the draft.
        rotation: ``Q``.
        aux: the draft's aux hidden states; corrected in every case.
        embedding: ``shared``: rows of the target's table are un-rotated when looked up; ``copied``:
            the draft's table is filled with the target's, un-rotated.
        head: ``shared``: the draft's output is divided by the final norm's scale and rotated before
            it meets the target's head. ``restored``: the draft gets the original head, for a host
            that shares none.
        final_norm: that scale, when something needs it.
        copied_embedding: where the copied table comes from.
    """

    mode: Literal["runtime", "fold", "aligned"]
    target: Path
    draft: Path
    rotation: Rotation
    aux: AuxStates
    embedding: Choice
    head: HeadChoice
    final_norm: FinalNorm | None
    copied_embedding: CopiedEmbedding | None = None

    @property
    def acts_on_steps(self) -> bool:
        """True when a served step needs ``Q``; else everything happened while loading."""
        return self.mode == "runtime" or self.embedding == "shared" or self.head != "own"

    def summary(self, table_bytes: int = 0) -> str:
        """One line for the log: the pair, ``Q``, what is corrected, and what it takes.

        Args:
            table_bytes: size of a token table of the draft's own on this rank.
        """
        rotation = self.rotation
        states = "un-rotated before norms and fc"
        if self.mode == "fold":
            states = "taken as they are by an fc into which Q was folded"
        elif self.mode == "aligned":
            states = "taken as they are by a draft that was aligned offline to this rotation"
        embedding = "its own embedding"
        if self.embedding == "shared":
            embedding = "the target's embedding (shared, un-rotated at look-up)"
        elif self.embedding == "copied":
            embedding = "a copy of the target's embedding (un-rotated, from its files)"
        head = "its own lm_head"
        if self.head == "shared":
            head = "the target's lm_head (shared, entered through the final norm's scale and Q)"
        elif self.head == "restored":
            head = "the unrotated target's lm_head (a copy; this host shares none)"
        scale = f"; final norm's scale from {self.final_norm.source}" if self.final_norm else ""
        return (
            f"mode {self.mode}; target {self.target}, H={rotation.size}, {rotation} (fingerprint "
            f"{rotation.fingerprint[:12]}, {rotation.source}); draft {self.draft}: {self.aux} "
            f"{states}, {embedding}, {head}{scale}; memory: {self._memory(table_bytes)}"
        )

    def _memory(self, table_bytes: int) -> str:
        if not self.acts_on_steps:
            taken = "nothing is kept beside the weights"
        else:
            signs, factor, _ = self.rotation.plan
            scale = 0 if self.final_norm is None else self.final_norm.scale.nbytes
            taken = f"{_mebibytes(signs.nbytes + factor.nbytes + scale)} for Q"
        if self.embedding != "shared":
            return f"{taken}, {_mebibytes(table_bytes)} for the draft's own token table"
        return f"{taken}, no second token table ({_mebibytes(table_bytes)} saved)"


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.3f} MiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"


@fp32_on_the_cpu()
def correction_of(
    target: Path,
    draft: str,
    settings: Settings,
    draft_revision: str | None = None,
    *,
    hub_cache: str | None = None,
    pipeline_stages: int = 1,
) -> Correction | None:
    """Return what ``draft`` needs on ``target``, None when there is nothing to do.

    ``draft`` is a folder or a hub id (looked for in ``hub_cache``, or the hub's own cache); unless
    the target is rotated, only for the mark of an alignment. With several ``pipeline_stages`` the
    draft runs where the target has a head, but no token table.

    None means: ``mode`` is off, or nothing says that the target is rotated, or it is rotated,
    cannot be corrected and ``strict`` is off (then a warning has been logged).

    Raises:
        QuaRotError: the target is rotated, the pair cannot be corrected, and ``strict`` is on; the
            message names the file and the remedy.
    """
    if settings.mode == "off":
        logger.info("eagle3_quarot: mode is 'off', the draft is left as it is")
        return None
    try:
        facts = TargetFacts.from_folder(target)
        rotation = rotation_of(facts, settings)
        if rotation is None:
            _refuse_aligned(facts, draft, draft_revision, hub_cache)
            return None
        facts_of_draft = DraftFacts(model_folder(draft, draft_revision, cache=hub_cache))
        if is_aligned(facts_of_draft, rotation):
            return _aligned(facts, facts_of_draft, rotation)
        return _correct(facts, facts_of_draft, rotation, settings, pipeline_stages)
    except QuaRotError as error:
        tolerate(error, settings)
        return None


def tolerate(error: QuaRotError, settings: Settings) -> None:
    """Raise ``error`` when settings are strict, else warn that the draft is served uncorrected."""
    if settings.strict:
        raise error
    logger.warning(
        "eagle3_quarot: serving the draft uncorrected because 'strict' is false; expect an "
        "acceptance rate near 0. Reason: %s",
        error,
    )


def is_aligned(draft: DraftFacts, rotation: Rotation) -> bool:
    """True when ``draft`` carries the mark of an offline alignment to ``rotation``.

    Raises:
        UnsupportedPairError: it was aligned to another rotation, so nothing makes it right here.
        CheckpointError: its configuration is broken, or the mark is damaged.
    """
    marker = draft.alignment
    if marker is None:
        return False
    if marker.rotation == rotation.fingerprint:
        return True
    raise UnsupportedPairError(
        f"{draft.folder}: this draft was aligned offline to the rotation {marker.rotation[:12]}, "
        f"but the target's is {rotation.fingerprint[:12]} ({rotation.source}). Every proposal "
        "would be rejected. Use the original draft, or align it to this target"
    )


def _refuse_aligned(
    target: TargetFacts, draft: str, revision: str | None, hub_cache: str | None
) -> None:
    """Refuse a draft that was aligned to some rotation, on a target that has none.

    Raises:
        UnsupportedPairError: that is what it is.
    """
    try:
        folder = model_folder(draft, revision, cache=hub_cache, local=True)
        marker = DraftFacts(folder).alignment
        known = target.recorded_rotations is not None or target.final_norm is not None
    except CheckpointError:
        # Most targets are not rotated; what the engine can load and we cannot read stops none.
        return
    if marker is not None and known:
        raise UnsupportedPairError(
            f"{folder}: this draft was aligned offline to the rotation {marker.rotation[:12]}, but "
            f"nothing says that the target {target.folder} is rotated. Every proposal would be "
            "rejected. Use the original draft (eagle3-quarot align --undo gives it back), or the "
            "rotated target that it was aligned to"
        )


def _aligned(target: TargetFacts, draft: DraftFacts, rotation: Rotation) -> Correction:
    """Nothing to correct, and nothing that the host may correct either."""
    return Correction(
        mode="aligned",
        target=target.folder,
        draft=draft.folder,
        rotation=rotation,
        aux=aux_states_of(draft, rotation.size, target.layer_count),
        embedding="own",
        head="own",
        final_norm=None,
    )


def _correct(
    target: TargetFacts,
    draft: DraftFacts,
    rotation: Rotation,
    settings: Settings,
    pipeline_stages: int,
) -> Correction:
    verify_width(draft, target, rotation.size)
    aux = aux_states_of(draft, rotation.size, target.layer_count)
    verify_vocabulary(draft)
    embedding = choose_embedding(target, draft, rotation, strict=settings.strict)
    copied_embedding = None
    if embedding == "shared" and pipeline_stages > 1:
        embedding = "copied"
        copied_embedding = CopiedEmbedding.of(target, rotation, draft.vocabulary or 0)
    head: HeadChoice = "own" if draft.has(HEAD) else "shared"
    reads_norm = head == "shared" or aux.count == 0
    original = None
    if settings.original_model is not None and (reads_norm or rotation.assumption is not None):
        original = model_folder(settings.original_model)
    confirm(target, draft, rotation, original)
    final_norm = find_final_norm(target, draft, rotation, original) if reads_norm else None
    return Correction(
        mode="fold" if settings.mode == "fold" else "runtime",
        target=target.folder,
        draft=draft.folder,
        rotation=rotation,
        aux=aux,
        embedding=embedding,
        head=head,
        final_norm=final_norm,
        copied_embedding=copied_embedding,
    )
