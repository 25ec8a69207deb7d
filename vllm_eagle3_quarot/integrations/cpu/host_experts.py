# SPDX-License-Identifier: Apache-2.0
"""vLLM's layer of experts, whose class and attributes differ from release to release."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers import fused_moe


def is_experts(layer: torch.nn.Module) -> bool:
    """Tell whether ``layer`` is the one that holds a layer's routed experts.

    Before 0.22 its class has only the name ``FusedMoE``, which is a function from 0.24.
    """
    experts = getattr(fused_moe, "RoutedExperts", None) or fused_moe.FusedMoE
    return isinstance(layer, experts)


def has_own_loader(layer: Any) -> bool:
    """Tell whether ``layer`` loads tensors past the loaders of its parameters.

    vLLM's Transformers backend does so before 0.25.
    """
    return getattr(layer, "expert_mapping", None) is not None


def local_experts(layer: Any, count: int) -> list[int]:
    """Return which of the model's ``count`` experts this rank has."""
    index_of = layer._map_global_expert_id_to_local_expert_id
    return [number for number in range(count) if index_of(number) >= 0]
