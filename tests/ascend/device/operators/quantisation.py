# SPDX-License-Identifier: Apache-2.0
"""int8 quantisation of activations and the int8 product, as msModelSlim's W8A8 needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: torch's codes of int8 and qint8, which torch_npu passes as integers.
INT8_CODES = frozenset({1, 12})
INT8_MAX = 127
INT8_MIN = -128


def quantize(
    x: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    dtype: int,
    axis: int = 1,
    div_mode: bool = True,
) -> torch.Tensor:
    """``round(x / scales + zero_points)`` as int8; ``x * scales`` when ``div_mode`` is off."""
    _require_int8(dtype)
    if axis not in (-1, x.dim() - 1):
        raise NotImplementedError(f"quantisation along axis {axis}")
    scaled = x.float() / scales.float() if div_mode else x.float() * scales.float()
    if zero_points is not None:
        scaled = scaled + zero_points.float()
    return _rounded(scaled)


def dynamic_quant(
    x: torch.Tensor,
    *,
    smooth_scales: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    dst_type: int | None = None,
    quant_mode: str = "pertoken",
    dst_type_max: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row in steps of its largest magnitude / 127, and that step as fp32."""
    if dst_type is not None:
        _require_int8(dst_type)
    if group_index is not None or quant_mode != "pertoken":
        raise NotImplementedError(f"dynamic quantisation with mode {quant_mode} or groups")
    wide = x.float() if smooth_scales is None else x.float() * smooth_scales.float()
    step = wide.abs().amax(-1, keepdim=True) / INT8_MAX
    return _rounded(wide / step.clamp_min(torch.finfo(torch.float32).tiny)), step.squeeze(-1)


def quant_matmul(
    x1: torch.Tensor,
    x2: torch.Tensor,
    scale: torch.Tensor,
    *,
    offset: torch.Tensor | None = None,
    pertoken_scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    output_dtype: int | None = None,
    **other: object,
) -> torch.Tensor:
    """``(x1 @ x2 + bias) * scale * pertoken_scale`` of int8 ``[T, K]`` and ``[K, N]``."""
    given = sorted(name for name, value in other.items() if value is not None)
    if offset is not None or given or x1.dtype != torch.int8 or x2.dtype != torch.int8:
        raise NotImplementedError(f"quantised product of {x1.dtype} and {x2.dtype} with {given}")
    # fp64 holds every sum of int8 products exactly.
    product = x1.double() @ x2.double()
    if bias is not None:
        product = product + bias.double()
    product = product * scale.double()
    if pertoken_scale is not None:
        product = product * pertoken_scale.double().unsqueeze(-1)
    return product.to(_FLOAT_CODES[output_dtype])


#: torch's codes of the output types that vllm-ascend asks for.
_FLOAT_CODES: dict[int | None, torch.dtype] = {
    5: torch.float16,
    6: torch.float32,
    15: torch.bfloat16,
}


def _require_int8(code: int) -> None:
    if code not in INT8_CODES:
        raise NotImplementedError(f"quantisation to the type with torch's code {code}")


def _rounded(values: torch.Tensor) -> torch.Tensor:
    return values.round().clamp(INT8_MIN, INT8_MAX).to(torch.int8)


OPERATORS: dict[str, Callable[..., Any]] = {
    "npu::npu_quantize": quantize,
    "npu::npu_dynamic_quant": dynamic_quant,
    "npu::npu_quant_matmul": quant_matmul,
}
