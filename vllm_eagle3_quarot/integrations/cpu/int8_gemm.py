# SPDX-License-Identifier: Apache-2.0
"""int8 matrix products that equal the checkpoint's integer arithmetic."""

from __future__ import annotations

import logging
from functools import cache
from typing import Protocol

import torch

logger = logging.getLogger("vllm.eagle3_quarot")

#: Longest int8 dot product whose every partial sum fp32 holds exactly: 2**24 / (128 * 128).
_EXACT_FP32_LENGTH = 1024

#: Entries in oneDNN's cache of generated code, one per number of tokens; vLLM's own value.
_PRIMITIVE_CACHE_SIZE = 32


class Int8Gemm(Protocol):
    """An exact integer product with one scale per output channel."""

    def __call__(self, x_q: torch.Tensor) -> torch.Tensor:
        """Map ``x_q`` int8 ``[T, K]`` to ``[T, N]`` in the output dtype."""


def make_int8_gemm(
    weight: torch.Tensor, scale: torch.Tensor, zero_point: int, out_dtype: torch.dtype
) -> Int8Gemm:
    """Return the fastest ``(x_q - zero_point) @ W.T * scale`` that is exact on this machine.

    Args:
        weight: int8 ``[N, K]``.
        scale: fp32 ``[N]``, one per output channel.
        zero_point: subtracted from every ``x_q``; in [-128, 127].
        out_dtype: dtype of the result, rounded to from fp32.
    """
    if onednn_is_exact(out_dtype, per_token=False):
        return OneDnnGemm(weight, scale, zero_point, out_dtype)
    return ChunkedFp32Gemm(weight, scale, zero_point, out_dtype)


class OneDnnGemm:
    """vLLM's CPU kernel: int8 weights packed once, int32 sums, zero point and scale inside."""

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, zero_point: int, out_dtype: torch.dtype
    ) -> None:
        from vllm import _custom_ops as ops

        self._scaled_mm = ops.onednn_scaled_mm
        self._out_dtype = out_dtype
        self._out_features = weight.shape[0]
        # The handler keeps the address of the scales, not a copy.
        self._scale = scale.to(torch.float32).contiguous()
        self._x_scale = torch.ones(1, dtype=torch.float32)
        self._zero_point = torch.tensor([zero_point], dtype=torch.int32)
        self._handler = ops.create_onednn_scaled_mm(
            weight.contiguous().t(), self._scale, out_dtype, False, True, _PRIMITIVE_CACHE_SIZE
        )

    def __call__(self, x_q: torch.Tensor) -> torch.Tensor:
        out = torch.empty((x_q.shape[0], self._out_features), dtype=self._out_dtype)
        self._scaled_mm(self._handler, x_q, out, self._x_scale, self._zero_point, None, None)
        return out


class ChunkedFp32Gemm:
    """Fallback: fp32 products of at most 1024 terms, whose partial sums are all exact integers.

    Weights take four bytes instead of one.
    """

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, zero_point: int, out_dtype: torch.dtype
    ) -> None:
        self._chunks = [
            chunk.t().to(torch.float32).contiguous()
            for chunk in weight.split(_EXACT_FP32_LENGTH, dim=1)
        ]
        self._correction = weight.sum(dim=1, dtype=torch.int32) * zero_point
        self._scale = scale.to(torch.float32)
        self._out_dtype = out_dtype

    def __call__(self, x_q: torch.Tensor) -> torch.Tensor:
        parts = x_q.to(torch.float32).split(_EXACT_FP32_LENGTH, dim=1)
        total = -self._correction
        for part, chunk in zip(parts, self._chunks, strict=True):
            total = total + (part @ chunk).to(torch.int32)
        return (total.to(torch.float32) * self._scale).to(self._out_dtype)


@cache
def onednn_is_exact(out_dtype: torch.dtype, *, per_token: bool) -> bool:
    """Tell whether vLLM's int8 kernel gives exact sums on this machine, by trying extreme inputs.

    On x86 without VNNI instructions it multiplies with ``vpmaddubsw``, whose int16 sums of two
    products saturate (127 * 127 twice is enough), and the answer is silently wrong.

    Args:
        out_dtype: dtype of the result; oneDNN picks its code by it.
        per_token: ask about one activation scale per token and no zero point, else about one scale
            and one zero point for all tokens.
    """
    extremes = ((127, 127), (127, -128), (-128, 127), (-128, -128))
    try:
        exact = all(_product_is_exact(*values, out_dtype, per_token) for values in extremes)
        fault = "overflows on this CPU, which has no VNNI instructions"
    except (AttributeError, RuntimeError) as error:  # built without oneDNN, or not for this dtype
        exact = False
        fault = f"is not available for {out_dtype} ({error})"
    if not exact:
        _warn_once(fault)
    return exact


@cache
def _warn_once(fault: str) -> None:
    logger.warning(
        "eagle3_quarot: vLLM's int8 kernel %s; W8A8 layers run as exact fp32 products instead, "
        "which takes four times the memory for their weights and is slower for large ones",
        fault,
    )


def _product_is_exact(x_value: int, w_value: int, out_dtype: torch.dtype, per_token: bool) -> bool:
    from vllm import _custom_ops as ops

    tokens, features, channels = 3, 64, 16
    x_q = torch.full((tokens, features), x_value, dtype=torch.int8)
    weight = torch.full((channels, features), w_value, dtype=torch.int8)
    # A power of two that keeps the result within fp16's range without rounding it in fp32.
    scale = torch.full((channels,), 2.0**-10, dtype=torch.float32)
    zero_point = 0 if per_token else -128
    expected = (x_value - zero_point) * w_value * features * 2.0**-10
    if per_token:
        handler = ops.create_onednn_scaled_mm(
            weight.t(), scale, out_dtype, True, False, _PRIMITIVE_CACHE_SIZE
        )
        x_scale = torch.ones((tokens, 1), dtype=torch.float32)
        out = torch.empty((tokens, channels), dtype=out_dtype)
        ops.onednn_scaled_mm(handler, x_q, out, x_scale, None, None, None)
    else:
        out = OneDnnGemm(weight, scale, zero_point, out_dtype)(x_q)
    return torch.equal(out, torch.full_like(out, expected))
