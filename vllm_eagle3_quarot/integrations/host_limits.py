# SPDX-License-Identifier: Apache-2.0
"""Hosts and options under which a draft is run past the places where we correct it.

An uncorrected place is invisible but for its acceptance rate, so such a pair is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_eagle3_quarot.draft.correction import Correction
from vllm_eagle3_quarot.draft.restored_head import not_restorable
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.integrations import registration

if TYPE_CHECKING:
    from vllm.config import VllmConfig


def refusal_of(vllm_config: VllmConfig, correction: Correction) -> UnsupportedPairError | None:
    """Return why this host cannot serve the corrected draft, None when it can."""
    if registration.unmet:
        return UnsupportedPairError(
            f"{correction.draft} on {correction.target}: the target is rotated, and this host "
            f"lacks what the correction needs: {'; '.join(registration.unmet)}. Nearly every "
            f"proposal would be rejected. {registration.REMEDY}"
        )
    if correction.head == "restored" and (error := not_restorable(correction.target)) is not None:
        return error
    if correction.aux.count == 0 and runs_on_second_runner(vllm_config):
        return UnsupportedPairError(
            f"{correction.draft}: the draft takes the target's post-norm state, which vLLM's model "
            "runner V2 hands over without asking the draft's class, so it would stay rotated. Set "
            "VLLM_USE_V2_MODEL_RUNNER=0"
        )
    return None


def leaves_heads_uninitialised() -> bool:
    """True on vllm-ascend, which shares a target's head with other kinds of draft only."""
    from vllm.platforms import current_platform

    return bool(current_platform.device_type == "npu")


def runs_on_second_runner(vllm_config: VllmConfig) -> bool:
    """True where the engine will build model runner V2; hosts without one do not say."""
    return bool(getattr(vllm_config, "use_v2_model_runner", False))
