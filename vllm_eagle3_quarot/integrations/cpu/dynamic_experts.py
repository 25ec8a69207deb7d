# SPDX-License-Identifier: Apache-2.0
"""W8A8_DYNAMIC experts: int8 weights, int8 activations with one scale per token.

For a token ``x`` and each of its experts, chosen by the router with weight ``p``::

    gate, up = W8A8_DYNAMIC(x, gate_proj), W8A8_DYNAMIC(x, up_proj)
    y       += p * W8A8_DYNAMIC(silu(gate) * up, down_proj)

with the linear layer of :mod:`.dynamic_linear`. Its integer products are exact, so a token's result
does not depend on which other tokens are computed with it. All between them is fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch.nn.functional import silu
from vllm.model_executor.layers.fused_moe import (
    FusedMoEConfig,
    FusedMoEMethodBase,
    FusedMoeWeightScaleSupported,
)
from vllm.utils.torch_utils import direct_register_custom_op

from vllm_eagle3_quarot.integrations.cpu.dynamic_linear import quantise_per_token
from vllm_eagle3_quarot.integrations.cpu.expert_loading import ExpertTensors
from vllm_eagle3_quarot.integrations.cpu.expert_plan import ExpertsPlan
from vllm_eagle3_quarot.integrations.cpu.expert_routing import route
from vllm_eagle3_quarot.integrations.cpu.host_experts import local_experts
from vllm_eagle3_quarot.integrations.cpu.int8_gemm import Int8Gemm, make_int8_gemm
from vllm_eagle3_quarot.integrations.cpu.weight_loading import check_scales, check_symmetric


class Expert(NamedTuple):
    """Products of one expert: ``[t, H]`` to ``[t, 2I]``, gate before up, and ``[t, I]`` to
    ``[t, H]``; fp32, with the weights' scales and without the tokens'."""

    gate_up: Int8Gemm
    down: Int8Gemm


class DynamicExperts:
    """The experts of one layer that this rank has.

    Args:
        experts: by their number in the model.
    """

    def __init__(self, experts: Mapping[int, Expert]) -> None:
        self._experts = dict(experts)

    def __call__(
        self, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum of each token's experts.

        Args:
            x: ``[T, H]``.
            topk_weights: fp32 ``[T, k]``.
            topk_ids: integers ``[T, k]``, numbers of experts of the model.

        Returns:
            ``[T, H]`` in the dtype of ``x``, without the experts of other ranks.
        """
        x_q, x_scale = quantise_per_token(x)
        output = torch.zeros(x.shape, dtype=torch.float32)
        for number in topk_ids.unique().tolist():
            expert = self._experts.get(number)
            if expert is None:
                continue
            tokens, choice = (topk_ids == number).nonzero(as_tuple=True)
            gate, up = (expert.gate_up(x_q[tokens]) * x_scale[tokens]).chunk(2, dim=-1)
            inner_q, inner_scale = quantise_per_token(silu(gate) * up)
            weighted = expert.down(inner_q) * inner_scale * topk_weights[tokens, choice, None]
            output.index_add_(0, tokens, weighted)
        return output.to(x.dtype)


#: By the engine's name of the layer, which compiled graphs keep as a constant.
_LAYERS: WeakValueDictionary[str, DynamicExperts] = WeakValueDictionary()


def _dynamic_experts(
    x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, layer: str
) -> torch.Tensor:
    return _LAYERS[layer](x, topk_weights, topk_ids)


def _dynamic_experts_fake(
    x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, layer: str
) -> torch.Tensor:
    return torch.empty_like(x)


# An operator, because torch.compile cannot follow a loop over the experts that were chosen.
direct_register_custom_op(
    "eagle3_quarot_dynamic_experts", _dynamic_experts, fake_impl=_dynamic_experts_fake
)


class W8A8DynamicMoEMethod(FusedMoEMethodBase):
    """vLLM method of the experts of one layer.

    Args:
        moe: vLLM's configuration of the layer.
        plan: the layer's name, its experts and their scheme.
        dummy: nothing will be loaded (``--load-format dummy``).
    """

    def __init__(self, moe: FusedMoEConfig, plan: ExpertsPlan, dummy: bool = False) -> None:
        super().__init__(moe)
        self._plan = plan
        self._tensors = ExpertTensors(plan, dummy)
        self._experts: DynamicExperts | None = None

    @property
    def is_monolithic(self) -> bool:
        """True: vLLM's routers have no kernel for the CPU, so the method does the routing too."""
        return True

    def get_fused_moe_quant_config(self, layer: Any) -> None:
        """Return None: it describes layers to vLLM's own kernels, of which none is used."""

    def create_weights(
        self,
        layer: Any,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Register the parameters that the experts are stored in; see FusedMoEMethodBase."""
        load = extra_weight_attrs["weight_loader"]
        inner = intermediate_size_per_partition
        whole_inner = inner * self.moe.moe_parallel_config.tp_size
        stored = {"w1": (whole_inner, hidden_size), "w2": (hidden_size, whole_inner)}
        stored["w3"] = stored["w1"]
        columns = {part: (rows, 1) for part, (rows, _) in stored.items()}
        for name, rows, width in (("w13", 2 * inner, hidden_size), ("w2", hidden_size, inner)):
            weight = torch.zeros(num_experts, rows, width, dtype=torch.int8)
            weight_scale = torch.ones(num_experts, rows, 1, dtype=torch.float32)
            for leaf, data, shapes in (
                ("weight", weight, stored),
                ("weight_scale", weight_scale, columns),
                ("weight_offset", torch.zeros_like(weight_scale), columns),
            ):
                parameter: Any = torch.nn.Parameter(data, requires_grad=False)
                parameter.weight_loader = self._tensors.loader(leaf, data.dtype, shapes, load)
                parameter.quant_method = FusedMoeWeightScaleSupported.CHANNEL.value
                layer.register_parameter(f"{name}_{leaf}", parameter)

    def process_weights_after_loading(self, layer: Any) -> None:
        """Build the products and drop the parameters that they were built from."""
        local = local_experts(layer, self._plan.count)
        self._tensors.finish(layer, local)
        experts: dict[int, Expert] = {}
        for index, number in enumerate(local):
            experts[number] = Expert(
                self._product(
                    layer,
                    "w13",
                    index,
                    [self._plan.matrix(number, "w1"), self._plan.matrix(number, "w3")],
                ),
                self._product(layer, "w2", index, [self._plan.matrix(number, "w2")]),
            )
        self._experts = _LAYERS[self._plan.layer] = DynamicExperts(experts)
        for name in ("w13", "w2"):
            for leaf in ("weight", "weight_scale", "weight_offset"):
                setattr(layer, f"{name}_{leaf}", None)

    def apply_monolithic(
        self,
        layer: Any,
        x: torch.Tensor,
        router_logits: torch.Tensor,
        input_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the experts' output for ``x`` ``[T, H]`` and ``router_logits`` ``[T, E]``."""
        topk_weights, topk_ids = route(layer, x, router_logits)
        output: torch.Tensor = torch.ops.vllm.eagle3_quarot_dynamic_experts(
            x, topk_weights, topk_ids, self._plan.layer
        )
        return output

    def _product(self, layer: Any, name: str, index: int, matrices: list[str]) -> Int8Gemm:
        scale = getattr(layer, f"{name}_weight_scale").data[index].flatten()
        check_scales(scale, matrices, "weight_scale")
        check_symmetric(getattr(layer, f"{name}_weight_offset").data[index], matrices)
        weight = getattr(layer, f"{name}_weight").data[index]
        return make_int8_gemm(weight, scale, 0, torch.float32)
