# SPDX-License-Identifier: Apache-2.0
"""What we read from vLLM's configuration object, in one place."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_eagle3_quarot.checkpoint.folder import model_folder
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.settings import Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.eagle3_quarot")


@dataclass(frozen=True)
class EngineConfig:
    """The part of a ``VllmConfig`` that concerns a draft on a target.

    Attributes:
        target: folder of the target's checkpoint; None when it has none (GGUF, object store).
        draft: folder of the draft's checkpoint.
        draft_input_size: width of one aux hidden state as the draft's configuration has it.
        settings: the user's settings.
    """

    target: Path | None
    draft: Path
    draft_input_size: int
    settings: Settings

    @classmethod
    def from_vllm(cls, vllm_config: VllmConfig) -> EngineConfig:
        """Read ``vllm_config`` of an engine that speculates with a draft model.

        Raises:
            SettingsError: our settings are not valid.
            CheckpointError: the draft is neither a folder nor known to the hub.
        """
        settings = Settings.from_additional_config(vllm_config.additional_config)
        target = vllm_config.model_config
        draft = vllm_config.speculative_config.draft_model_config
        config = draft.hf_config
        width = getattr(config, "target_hidden_size", None) or config.hidden_size
        return cls(
            target=_target_folder(target.model, target.revision),
            draft=model_folder(draft.model, draft.revision),
            draft_input_size=width,
            settings=settings,
        )


def _target_folder(model: str, revision: str | None) -> Path | None:
    try:
        return model_folder(model, revision)
    except CheckpointError as error:
        # The engine can load from places that we cannot look into; that alone is no fault.
        logger.warning(
            "eagle3_quarot: whether the target is rotated could not be found out: %s. If it is, "
            "its Eagle3 draft is served uncorrected",
            error,
        )
        return None
