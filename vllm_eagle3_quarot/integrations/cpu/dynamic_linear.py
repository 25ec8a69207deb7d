# SPDX-License-Identifier: Apache-2.0
"""W8A8_DYNAMIC linear layers: int8 weights, int8 activations with one scale per token.

msModelSlim's arithmetic (AscendV1 format, 26.1.0)::

    x_scale = max|x| / 127                     per token
    y       = (round(x / x_scale) @ W8.T) * x_scale * weight_scale + bias

which is that of vLLM's own CPU kernel, up to ties of the rounding: the kernel multiplies by
``1 / x_scale``.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.kernels.linear import init_int8_linear_kernel
from vllm.model_executor.layers.linear import (
    LinearMethodBase,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.parameter import ChannelQuantScaleParameter, ModelWeightParameter

from vllm_eagle3_quarot.integrations.cpu.int8_gemm import ChunkedFp32Gemm, onednn_is_exact
from vllm_eagle3_quarot.integrations.cpu.layer_plan import LinearPlan
from vllm_eagle3_quarot.integrations.cpu.weight_loading import (
    LayerTensors,
    check_scales,
    check_symmetric,
)


def quantise_per_token(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``x`` ``[..., K]`` in steps of a scale of each token, and the scales.

    Returns:
        int8 ``[..., K]`` and fp32 ``[..., 1]``; times each other they are ``x`` up to half a step.
    """
    x_float = x.to(torch.float32)
    # A token of zeros has no scale; any positive one gives its zeros.
    scale = (x_float.abs().amax(dim=-1, keepdim=True) / 127).clamp(
        min=torch.finfo(torch.float32).tiny
    )
    return (x_float / scale).round_().to(torch.int8), scale


@register_weight_loader_v2_supported_method
class W8A8DynamicLinearMethod(LinearMethodBase):
    """vLLM linear method of one W8A8_DYNAMIC layer.

    Args:
        plan: the layer's name, its shards and its scheme.
        dummy: nothing will be loaded (``--load-format dummy``).
    """

    def __init__(self, plan: LinearPlan, dummy: bool = False) -> None:
        self._plan = plan
        self._tensors = LayerTensors(plan, dummy)
        self._exact: ChunkedFp32Gemm | None = None

    def create_weights(
        self,
        layer: Any,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Register the parameters that a W8A8_DYNAMIC layer is stored in; see LinearMethodBase."""
        load = extra_weight_attrs["weight_loader"]
        out_features = sum(output_partition_sizes)
        layer.logical_widths = output_partition_sizes
        self._kernel = init_int8_linear_kernel(
            is_channelwise=True,
            is_static_input_scheme=False,
            input_symmetric=True,
            module_name=type(self).__name__,
        )
        layer.register_parameter(
            "weight",
            ModelWeightParameter(
                data=torch.zeros(out_features, input_size_per_partition, dtype=torch.int8),
                input_dim=1,
                output_dim=0,
                weight_loader=self._tensors.loader("weight", [torch.int8], load),
            ),
        )
        for leaf in ("weight_scale", "weight_offset"):
            layer.register_parameter(
                leaf,
                ChannelQuantScaleParameter(
                    data=torch.ones(out_features, 1, dtype=torch.float32),
                    output_dim=0,
                    weight_loader=self._tensors.loader(leaf, [torch.float32], load),
                ),
            )
        # The kernel's other operands; a dynamic symmetric layer has none of them.
        layer.input_scale = None
        layer.input_zero_point = None
        layer.azp_adj = None

    def process_weights_after_loading(self, layer: Any) -> None:
        """Check the tensors and hand them to vLLM's kernel."""
        self._tensors.finish(layer)
        check_scales(layer.weight_scale, self._plan.shards, "weight_scale")
        check_symmetric(layer.weight_offset, self._plan.shards)
        layer.weight_offset = None
        if onednn_is_exact(torch.get_default_dtype(), per_token=True):
            self._kernel.process_weights_after_loading(layer)
            return
        self._exact = ChunkedFp32Gemm(
            layer.weight.data, layer.weight_scale.data.flatten(), 0, torch.float32
        )
        layer.weight = None
        layer.weight_scale = None

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return the layer's output for ``x`` ``[..., K]``."""
        if self._exact is None:
            output: torch.Tensor = self._kernel.apply_weights(layer, x, bias)
            return output
        x_q, x_scale = quantise_per_token(x)
        output = self._exact(x_q.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1) * x_scale
        if bias is not None:
            output = output + bias
        return output.to(x.dtype)
