# SPDX-License-Identifier: Apache-2.0
"""fp32 on the fake device: rotated and unrotated states agree to the last bits in fp32 only."""

from __future__ import annotations

import torch


def accept_fp32() -> None:
    """Let vllm-ascend's quantisation serve fp32, which the CPU has and its devices do not."""
    from vllm_ascend.quantization.modelslim_config import AscendModelSlimConfig

    supported = AscendModelSlimConfig.get_supported_act_dtypes()
    AscendModelSlimConfig.get_supported_act_dtypes = lambda *_: [*supported, torch.float32]
