# SPDX-License-Identifier: Apache-2.0
"""The rotation of a target's residual stream: from the settings, its files, or what they record."""

from __future__ import annotations

import logging

from vllm_eagle3_quarot.checkpoint.recorded_rotation import RecordedRotations
from vllm_eagle3_quarot.checkpoint.sidecar import REMEDY
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import CheckpointError, RotationError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.rebuilding import rebuild
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.settings import Settings

logger = logging.getLogger("vllm.eagle3_quarot")


def rotation_of(target: TargetFacts, settings: Settings) -> Rotation | None:
    """Return the rotation of ``target``'s residual stream, None when nothing says it is rotated.

    Raises:
        QuaRotError: it is rotated and the rotation is missing or unusable, or the target is broken.
    """
    if settings.rotation is not None:
        rotation = Rotation.from_file(settings.rotation, hidden_size=target.hidden_size)
    elif target.sidecar is not None:
        rotation = Rotation.from_file(target.sidecar, hidden_size=target.hidden_size)
    elif (recorded := _recorded(target)) is not None:
        if recorded.residual is None:
            # Such tools fold the norms in any case, so the final norm's ones mean nothing here.
            logger.debug(
                "eagle3_quarot: %s: the rotations by %s stay inside layers, nothing to correct",
                target.folder,
                recorded.tool,
            )
            return None
        rotation = rebuild(recorded.residual, target.hidden_size, target.folder)
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


def is_rotated(target: TargetFacts) -> bool:
    """True when something says that ``target``'s residual stream is rotated.

    Raises:
        QuaRotError: the checkpoint is broken.
    """
    if target.sidecar is not None:
        return True
    recorded = _recorded(target)
    return _looks_rotated(target) if recorded is None else recorded.residual is not None


def _recorded(target: TargetFacts) -> RecordedRotations | None:
    try:
        return target.recorded_rotations
    except CheckpointError as error:
        # As below: what the engine can load and we cannot read is no reason to stop a server.
        logger.debug("eagle3_quarot: the configuration could not be looked at: %s", error)
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
