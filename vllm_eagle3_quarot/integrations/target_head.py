# SPDX-License-Identifier: Apache-2.0
"""Entering a head that belongs to the target: ``x Wᵀ = ((x / g) Q) W'ᵀ``.

Every sampler of every host reaches a head through the draft's ``logits_processor``: by
``compute_logits``, by ``get_top_tokens``, or directly (vllm-ascend's ``compute_draft_token_ids``).
So that module gets a subclass of its own class which rotates the states first.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.rotation import Plan


class RotatedEntrance:
    """Goes before the class of a LogitsProcessor that serves a head in the target's basis."""

    quarot_plan: Plan
    quarot_multiplier: torch.Tensor

    def forward(
        self, lm_head: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor | None:
        """Logits of the draft's final states ``[T, H]``."""
        entered = self._entered(hidden_states)
        logits: torch.Tensor | None = super().forward(lm_head, entered, *args, **kwargs)  # type: ignore[misc]
        return logits

    def get_top_tokens(
        self, lm_head: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """Ids of the largest logits of ``[T, H]``."""
        entered = self._entered(hidden_states)
        tokens: torch.Tensor = super().get_top_tokens(lm_head, entered, *args, **kwargs)  # type: ignore[misc]
        return tokens

    def _entered(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return ops.rotate(hidden_states, self.quarot_plan, self.quarot_multiplier)


def rotate_at_entrance(processor: Any, plan: Plan, multiplier: torch.Tensor) -> None:
    """Make ``processor``, a draft's LogitsProcessor, rotate what it takes to a head.

    Args:
        processor: changed in place.
        plan: ``Q`` on the draft's device.
        multiplier: ``1 / g`` fp32 ``[H]``.
    """
    cls = type(processor)
    processor.__class__ = type(f"QuaRot{cls.__name__}", (RotatedEntrance, cls), {})
    processor.quarot_plan = plan
    processor.quarot_multiplier = multiplier
