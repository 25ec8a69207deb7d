# SPDX-License-Identifier: Apache-2.0
"""An Eagle3 draft class of the host, given un-rotated inputs.

Every runner hands the draft its aux hidden states through ``combine_hidden_states``, eagerly and
outside any captured graph. That is the one place where ``h = h' Qᵀ`` is computed; norms, ``fc`` and
everything behind them are the host's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.draft.correction import rotation_of, tolerate
from vllm_eagle3_quarot.draft.verification import verify_embedding
from vllm_eagle3_quarot.errors import QuaRotError, UnsupportedPairError
from vllm_eagle3_quarot.integrations.engine_config import EngineConfig
from vllm_eagle3_quarot.rotation import Plan, Rotation

if TYPE_CHECKING:
    from vllm.config import VllmConfig

logger = logging.getLogger("vllm.eagle3_quarot")


if TYPE_CHECKING:

    class _HostDraft(torch.nn.Module):
        """What we rely on in a host's Eagle3 draft class."""

        model: Any
        has_own_embed_tokens: bool
        has_own_lm_head: bool

        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None: ...
        def combine_hidden_states(self, hidden_states: torch.Tensor) -> torch.Tensor: ...
        def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any: ...

else:
    _HostDraft = object


class QuaRotDraftMixin(_HostDraft):
    """Goes before an Eagle3 draft class; without a rotation to undo it changes nothing."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        try:
            correction = _correction(vllm_config)
        except QuaRotError as error:
            # The engine reports a failed worker with a long traceback; this line is the reason.
            logger.error("eagle3_quarot: refusing to start. %s", error)
            raise
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._quarot_correction = correction
        self._quarot_plan: Plan | None = None
        if correction is not None:
            _, rotation = correction
            self._quarot_plan = rotation.plan_on(next(self.parameters()).device)

    def combine_hidden_states(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Un-rotate the aux states ``[T, A·H]``, then combine them as the host does.

        A one-dimensional argument ``[A·H]`` is the draft's own mask state for parallel drafting; it
        was never rotated and passes as it is.
        """
        if self._quarot_plan is not None and hidden_states.dim() > 1:
            hidden_states = ops.unrotate(hidden_states, self._quarot_plan)
        return super().combine_hidden_states(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        """Load as the host does, then check that nothing rotated is left to reach the draft."""
        loaded = super().load_weights(weights)
        if self._quarot_correction is not None:
            self._quarot_accept(*self._quarot_correction)
        return loaded

    def _quarot_accept(self, engine: EngineConfig, rotation: Rotation) -> None:
        """Refuse inputs that are still rotated, or log the one summary line."""
        rotated = [
            what
            for what, own in (
                ("token embedding", self.has_own_embed_tokens),
                ("lm_head", self.has_own_lm_head),
            )
            if not own
        ]
        if not getattr(self.model, "use_aux_hidden_state", True):
            rotated.append("post-norm hidden state (use_aux_hidden_state: false)")
        if rotated:
            error = UnsupportedPairError(
                f"{engine.draft}: the draft takes the rotated target's {' and '.join(rotated)}, "
                "which this version cannot un-rotate, so every proposal would be rejected. Use a "
                "draft that brings its own, or an unrotated target"
            )
            self._quarot_plan = None
            if engine.settings.strict:
                logger.error("eagle3_quarot: refusing to start. %s", error)
            tolerate(error, engine.settings)
            return
        logger.info(
            "eagle3_quarot: target %s, H=%d, %s (fingerprint %s, %s); draft %s, A=%d aux hidden "
            "states un-rotated before norms and fc in mode '%s'; embedding and head are its own",
            engine.target,
            rotation.size,
            rotation,
            rotation.fingerprint[:12],
            rotation.source,
            engine.draft,
            self.model.fc.input_size // rotation.size,
            engine.settings.mode,
        )


def _correction(vllm_config: VllmConfig) -> tuple[EngineConfig, Rotation] | None:
    """The rotation to undo for this engine's target, checked against its draft; None for nothing.

    Raises:
        QuaRotError: the target is rotated and cannot be corrected, and settings are strict.
    """
    if vllm_config.speculative_config is None:
        return None
    engine = EngineConfig.from_vllm(vllm_config)
    rotation = rotation_of(engine.target, engine.settings) if engine.target is not None else None
    if engine.target is None or rotation is None:
        return None
    try:
        if engine.draft_input_size != rotation.size:
            raise UnsupportedPairError(
                f"{engine.draft}: the draft was made for hidden states of "
                f"{engine.draft_input_size} channels, the target {engine.target} has "
                f"{rotation.size}. They are not a pair"
            )
        verify_embedding(
            TensorIndex.from_folder(engine.target), TensorIndex.from_folder(engine.draft), rotation
        )
    except QuaRotError as error:
        tolerate(error, engine.settings)
        return None
    return engine, rotation
