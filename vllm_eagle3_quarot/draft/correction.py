# SPDX-License-Identifier: Apache-2.0
"""Is the target rotated, and by which ``Q``? One decision, taken before anything is loaded."""

from __future__ import annotations

import logging
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.sidecar import REMEDY
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import (
    CheckpointError,
    QuaRotError,
    RotationError,
    UnsupportedPairError,
)
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.settings import Settings

logger = logging.getLogger("vllm.eagle3_quarot")


def rotation_of(target: Path, settings: Settings) -> Rotation | None:
    """Return the rotation that has to be undone for ``target``, None when there is nothing to do.

    None means: ``mode`` is off, or nothing says that the target is rotated, or it is rotated,
    cannot be corrected and ``strict`` is off (then a warning has been logged).

    Raises:
        QuaRotError: the target is rotated, its rotation cannot be used, and ``strict`` is on; the
            message names the file and the remedy.
    """
    if settings.mode == "off":
        logger.info("eagle3_quarot: mode is 'off', the draft is left as it is")
        return None
    try:
        return _find(TargetFacts.from_folder(target), settings)
    except QuaRotError as error:
        tolerate(error, settings)
        return None


def _looks_rotated(target: TargetFacts) -> bool:
    if target.description is not None and target.description.claims_rotation:
        return True
    try:
        return target.final_norm_is_ones
    except CheckpointError as error:
        # The engine has loaded this target by its own means (another format, a remote store): files
        # that we cannot read are no reason to stop a server.
        logger.debug("eagle3_quarot: the final norm could not be looked at: %s", error)
        return False


def tolerate(error: QuaRotError, settings: Settings) -> None:
    """Raise ``error`` when settings are strict, else warn that the draft is served uncorrected."""
    if settings.strict:
        raise error
    logger.warning(
        "eagle3_quarot: serving the draft uncorrected because 'strict' is false; expect an "
        "acceptance rate near 0. Reason: %s",
        error,
    )


def _find(target: TargetFacts, settings: Settings) -> Rotation | None:
    if settings.rotation is not None:
        rotation = Rotation.from_file(settings.rotation, hidden_size=target.hidden_size)
    elif target.sidecar is not None:
        rotation = Rotation.from_file(target.sidecar, hidden_size=target.hidden_size)
    elif _looks_rotated(target):
        raise RotationError(
            f"{target.folder}: the target is rotated (its final norm is exactly one everywhere, as "
            "left by folding it into the head), but it brings no rotation file "
            "optional/quarot.safetensors. An Eagle3 draft trained on the original model would get "
            f"rotated hidden states and every proposal would be rejected: {REMEDY}"
        )
    else:
        logger.debug("eagle3_quarot: %s is not rotated, nothing to correct", target.folder)
        return None
    if target.head_equals_embedding:
        raise UnsupportedPairError(
            f"{target.folder}: embedding and head of this rotated target are one table, so the "
            "final norm's scale was folded into the embedding as well and the target itself is "
            "damaged (known fault of quantising a model with tied embeddings). Quantise again from "
            "a copy with separate tables (tie_word_embeddings: false)"
        )
    return rotation
