# SPDX-License-Identifier: Apache-2.0
"""From vLLM's configuration object to the correction that its draft needs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_eagle3_quarot.checkpoint.folder import model_folder
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.correction import Correction, correction_of, tolerate
from vllm_eagle3_quarot.draft.target_rotation import is_rotated
from vllm_eagle3_quarot.errors import CheckpointError, QuaRotError
from vllm_eagle3_quarot.integrations.host_limits import (
    leaves_heads_uninitialised,
    refusal_of,
)
from vllm_eagle3_quarot.settings import Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.eagle3_quarot")


def correction_for(vllm_config: VllmConfig) -> Correction | None:
    """Return what the draft of ``vllm_config`` needs, None when there is nothing to do.

    Raises:
        SettingsError: our settings are not valid.
        QuaRotError: the target is rotated, cannot be corrected, and settings are strict.
    """
    speculation = vllm_config.speculative_config
    if speculation is None:
        return None
    settings = Settings.from_additional_config(vllm_config.additional_config)
    target = _target_folder(vllm_config)
    if target is None:
        return None
    draft = speculation.draft_model_config
    correction = correction_of(
        target,
        draft.model,
        settings,
        draft.revision,
        hub_cache=_download_folder(vllm_config),
        pipeline_stages=vllm_config.parallel_config.pipeline_parallel_size,
    )
    if correction is not None and correction.head == "shared" and leaves_heads_uninitialised():
        correction = replace(correction, head="restored")
    error = None if correction is None else refusal_of(vllm_config, correction)
    if error is None:
        return correction
    tolerate(error, settings)
    return None


def rotated_target(vllm_config: VllmConfig) -> Path | None:
    """The target's folder when it is rotated; None when it is not, unknown, or ``mode`` is off."""
    if vllm_config.speculative_config is None:
        return None
    target = _target_folder(vllm_config)
    try:
        settings = Settings.from_additional_config(vllm_config.additional_config)
        if target is None or settings.mode == "off":
            return None
        rotated = is_rotated(TargetFacts.from_folder(target))
    except QuaRotError as error:
        logger.debug("eagle3_quarot: the target could not be looked at: %s", error)
        return None
    return target if rotated else None


def _target_folder(vllm_config: VllmConfig) -> Path | None:
    target = vllm_config.model_config
    try:
        return model_folder(target.model, target.revision, cache=_download_folder(vllm_config))
    except CheckpointError as error:
        # The engine can load from places that we cannot look into; that alone is no fault.
        logger.warning(
            "eagle3_quarot: whether the target is rotated could not be found out: %s. If it is, "
            "its Eagle3 draft is served uncorrected",
            error,
        )
        return None


def _download_folder(vllm_config: VllmConfig) -> str | None:
    """Where the engine keeps models of a hub, ``--download-dir``; None for the hub's own cache."""
    folder = vllm_config.load_config.download_dir
    return folder if folder is None else str(folder)
