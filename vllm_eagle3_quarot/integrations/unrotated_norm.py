# SPDX-License-Identifier: Apache-2.0
"""Un-rotation and the draft's first RMSNorm as one operator.

Drafts with a norm in front of ``fc`` read every aux state twice: to un-rotate it and to normalise
it. The norm module gets a subclass of its own class that does both in one pass; parameters, names
and the host's ``combine_hidden_states`` stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.rotation import Plan


class UnrotatedNorm:
    """Goes before the class of an RMSNorm that is the first to see aux hidden states."""

    quarot_plan: Plan
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the un-rotated ``x`` ``[T, n·H]``; a mask state ``[n·H]`` passes as it is."""
        if x.dim() == 1:
            normalised: torch.Tensor = super().forward(x)  # type: ignore[misc]
            return normalised
        return ops.unrotate_norm(x, self.quarot_plan, self.weight, self.variance_epsilon)


def first_norms(inner: Any) -> list[Any]:
    """The norm modules through which a draft's aux states enter: none, one, or one per state."""
    if getattr(inner, "input_norm", None) is not None:
        return [inner.input_norm]
    return list(getattr(inner, "fc_norm", None) or [])


def unrotate_in_norms(norms: list[Any], plan: Plan) -> None:
    """Make every module of ``norms`` un-rotate its input before it normalises."""
    for norm in norms:
        cls = type(norm)
        norm.__class__ = type(f"QuaRot{cls.__name__}", (UnrotatedNorm, cls), {})
        norm.quarot_plan = plan
