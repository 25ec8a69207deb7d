# SPDX-License-Identifier: Apache-2.0
"""Which experts a token goes to: vLLM's own routing for the CPU, wherever this release keeps it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

_EXPERTS = "vllm.model_executor.layers.fused_moe"

#: Modules that have had ``select_experts``, newest first.
_ROUTING_MODULES = ("router.cpu_router", "experts.cpu_moe", "cpu_fused_moe")


def _find_select_experts() -> Any:
    for name in _ROUTING_MODULES:
        try:
            module = importlib.import_module(f"{_EXPERTS}.{name}")
        except ModuleNotFoundError:
            continue
        found = getattr(module, "select_experts", None)
        if found is not None:
            return found
    raise ImportError(f"{_EXPERTS} has select_experts in none of {', '.join(_ROUTING_MODULES)}")


_select_experts = _find_select_experts()


def route(
    layer: Any, x: torch.Tensor, router_logits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the experts of each token as vLLM's own CPU experts do.

    Args:
        layer: the experts, which know the model's kind of routing.
        x: ``[T, H]``.
        router_logits: ``[T, E]``.

    Returns:
        Weights, fp32 ``[T, k]``, and numbers of experts of the model, int32 ``[T, k]``.
    """
    chosen: tuple[torch.Tensor, torch.Tensor] = _select_experts(
        hidden_states=x,
        router_logits=router_logits,
        use_grouped_topk=layer.use_grouped_topk,
        top_k=layer.top_k,
        renormalize=layer.renormalize,
        topk_group=layer.topk_group,
        num_expert_group=layer.num_expert_group,
        custom_routing_function=layer.custom_routing_function,
        scoring_func=layer.scoring_func,
        routed_scaling_factor=layer.routed_scaling_factor,
        e_score_correction_bias=layer.e_score_correction_bias,
    )
    return chosen
