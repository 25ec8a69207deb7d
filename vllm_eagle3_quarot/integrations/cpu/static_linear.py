# SPDX-License-Identifier: Apache-2.0
"""W8A8 linear layers: int8 weights, int8 activations with scale and offset fixed at calibration.

msModelSlim's arithmetic (``W8A8`` in its AscendV1 format, 26.1.0), for each layer before fusing::

    x_q = clamp(round(x / input_scale + input_offset), -128, 127)
    y   = (x_q @ W8.T + quant_bias) * deq_scale
    quant_bias = round(bias / deq_scale - rowsum(W8) * input_offset)

Rounding is to even. A layer's bias is inside ``quant_bias``, so vLLM's own ``bias`` is not added.

What runs is the same integer rearranged so that no large terms cancel in floating point::

    y = ((x_q - input_offset) @ W8.T + residual) * deq_scale
    residual = quant_bias + rowsum(W8) * input_offset

``residual`` is ``round(bias / deq_scale)``, hence zero for layers without a bias, up to what the
tool lost by computing ``quant_bias`` in fp32. In a row-parallel layer each rank has a slice of W8's
columns: the sum over ranks is right when ``rowsum`` runs over the whole row and one rank alone adds
the residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import torch
from vllm.model_executor.layers.linear import (
    LinearMethodBase,
    RowParallelLinear,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.parameter import (
    ChannelQuantScaleParameter,
    ModelWeightParameter,
    PerTensorScaleParameter,
)

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.int8_gemm import Int8Gemm, make_int8_gemm
from vllm_eagle3_quarot.integrations.cpu.layer_plan import QUANTISED_TENSORS, LinearPlan
from vllm_eagle3_quarot.integrations.cpu.weight_loading import (
    LayerTensors,
    check_scales,
    scale_from_bits,
)

_INT8_MIN, _INT8_MAX = -128, 127


@dataclass(frozen=True)
class StaticProduct:
    """The product of the neighbouring fused shards that quantise their input alike.

    Attributes:
        input_scale: fp32 ``[1]``.
        input_offset: fp32 ``[1]``, an integer in [-128, 127].
        gemm: ``(x_q - input_offset) @ W8.T``; times ``deq_scale`` and in the layer's dtype when
            there is no residual, else unscaled in fp32.
        residual: None, or fp32 ``[N]`` to add before ``deq_scale``.
        deq_scale: fp32 ``[N]``.
        out_dtype: the layer's dtype.
    """

    input_scale: torch.Tensor
    input_offset: torch.Tensor
    gemm: Int8Gemm
    residual: torch.Tensor | None
    deq_scale: torch.Tensor
    out_dtype: torch.dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``x`` ``[T, K]`` to ``[T, N]``."""
        product = self.gemm(quantise(x, self.input_scale, self.input_offset))
        if self.residual is None:
            return product
        return ((product + self.residual) * self.deq_scale).to(self.out_dtype)


def quantise(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Return ``clamp(round(x / scale + offset), -128, 127)`` as int8, computed in fp32.

    vLLM's quantisation kernel multiplies by ``1 / scale`` instead, which lands on another integer
    for about 3 of 10,000 bf16 activations.
    """
    steps = torch.addcdiv(offset, x.to(torch.float32), scale)
    return steps.round_().clamp_(_INT8_MIN, _INT8_MAX).to(torch.int8)


@register_weight_loader_v2_supported_method
class W8A8StaticLinearMethod(LinearMethodBase):
    """vLLM linear method of one W8A8 layer.

    Args:
        plan: the layer's name, its shards and its scheme.
        dummy: nothing will be loaded (``--load-format dummy``).
    """

    def __init__(self, plan: LinearPlan, dummy: bool = False) -> None:
        self._plan = plan
        self._tensors = LayerTensors(plan, dummy)
        self._products: list[StaticProduct] = []

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
        """Register the parameters that a W8A8 layer is stored in; see LinearMethodBase."""
        if layer.has_bias and layer.skip_bias_add:
            raise CheckpointError(
                f"the model adds the bias of '{self._plan.layer}' later, but the checkpoint holds "
                "it inside 'quant_bias'; this model is not supported on vLLM's CPU platform"
            )
        load = extra_weight_attrs["weight_loader"]
        out_features = sum(output_partition_sizes)
        layer.logical_widths = output_partition_sizes

        layer.register_parameter(
            "weight",
            ModelWeightParameter(
                data=torch.zeros(out_features, input_size_per_partition, dtype=torch.int8),
                input_dim=1,
                output_dim=0,
                weight_loader=self._tensors.loader("weight", [torch.int8], load),
            ),
        )
        layer.register_parameter(
            "quant_bias",
            ChannelQuantScaleParameter(
                data=torch.zeros(out_features, dtype=torch.int32),
                output_dim=0,
                weight_loader=self._tensors.loader("quant_bias", [torch.int32], load),
            ),
        )
        layer.register_parameter(
            "deq_scale",
            ChannelQuantScaleParameter(
                data=torch.ones(out_features, dtype=torch.float32),
                output_dim=0,
                weight_loader=self._tensors.loader(
                    "deq_scale", [torch.float32, torch.int64], load, scale_from_bits
                ),
            ),
        )
        for leaf in ("input_scale", "input_offset"):
            layer.register_parameter(
                leaf,
                PerTensorScaleParameter(
                    data=torch.ones(len(output_partition_sizes), dtype=torch.float32),
                    weight_loader=self._tensors.loader(leaf, [torch.float32], load),
                ),
            )

    def process_weights_after_loading(self, layer: Any) -> None:
        """Build the products and drop the parameters that they were built from."""
        self._tensors.finish(layer)
        check_scales(layer.input_scale, self._plan.shards, "input_scale")
        check_scales(layer.deq_scale, self._plan.shards, "deq_scale")
        self._check_offsets(layer.input_offset)

        self._products.clear()
        ends = list(accumulate(layer.logical_widths))
        inputs = list(zip(layer.input_scale.tolist(), layer.input_offset.tolist(), strict=True))
        start = 0
        for (scale, offset), shards in groupby(range(len(ends)), key=inputs.__getitem__):
            rows = slice(start, ends[max(shards)])
            start = rows.stop
            self._products.append(self._product(layer, rows, scale, int(offset)))

        for leaf in QUANTISED_TENSORS[self._plan.scheme]:
            setattr(layer, leaf, None)

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Return the output for ``x`` ``[..., K]``; ``bias`` is in ``quant_bias`` already."""
        flat = x.reshape(-1, x.shape[-1])
        outputs = [product(flat) for product in self._products]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return output.reshape(*x.shape[:-1], output.shape[-1])

    def _product(self, layer: Any, rows: slice, scale: float, offset: int) -> StaticProduct:
        weight = layer.weight.data[rows]
        deq_scale = layer.deq_scale.data[rows].clone()
        out_dtype = torch.get_default_dtype()
        residual = self._residual(layer, rows, offset)
        gemm = (
            make_int8_gemm(weight, deq_scale, offset, out_dtype)
            if residual is None
            else make_int8_gemm(weight, torch.ones_like(deq_scale), offset, torch.float32)
        )
        return StaticProduct(
            input_scale=torch.tensor([scale], dtype=torch.float32),
            input_offset=torch.tensor([offset], dtype=torch.float32),
            gemm=gemm,
            residual=residual,
            deq_scale=deq_scale,
            out_dtype=out_dtype,
        )

    def _residual(self, layer: Any, rows: slice, offset: int) -> torch.Tensor | None:
        row_sum = layer.weight.data[rows].sum(dim=1, dtype=torch.int64)
        if isinstance(layer, RowParallelLinear) and layer.tp_size > 1:
            from vllm.distributed import get_tp_group

            torch.distributed.all_reduce(row_sum, group=get_tp_group().cpu_group)
            if layer.tp_rank > 0:
                return None
        residual = layer.quant_bias.data[rows].to(torch.int64) + offset * row_sum
        return residual.to(torch.float32) if bool(residual.any()) else None

    def _check_offsets(self, offsets: torch.Tensor) -> None:
        in_range = (offsets >= _INT8_MIN) & (offsets <= _INT8_MAX) & (offsets == offsets.round())
        if not bool(in_range.all()):
            raise CheckpointError(
                f"'input_offset' of {', '.join(self._plan.shards)} is {offsets.tolist()} where "
                "integers in [-128, 127] are expected; the weights are damaged"
            )
