# SPDX-License-Identifier: Apache-2.0
"""Latent attention (DeepSeek): one key of compressed and rotary channels serves all heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.ascend.device.operators.attention import CAUSAL, NO_MASK, attend
from tests.ascend.device.operators.normalisation import rms_norm


def interleave_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Pairs ``(0, 1), (2, 3) ...`` of ``[B, N, S, D]`` become halves and are rotated."""
    halves = torch.cat([x[..., ::2], x[..., 1::2]], -1).float()
    first, second = halves.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (halves * cos.float() + turned * sin.float()).to(x.dtype)


def kv_rmsnorm_rope_cache(
    kv: torch.Tensor,
    gamma: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    index: torch.Tensor,
    k_cache: torch.Tensor,
    ckv_cache: torch.Tensor,
    *,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
    **other: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Norm of the compressed part, rotation of the rest ``[B, 1, 1, D]``, both into their slots."""
    given = sorted(name for name, value in other.items() if isinstance(value, torch.Tensor))
    if cache_mode != "PA" or given:
        raise NotImplementedError(f"cache mode {cache_mode} with {given}")
    rank = gamma.shape[0]
    compressed, _ = rms_norm(kv[..., :rank], gamma, epsilon)
    rotated = interleave_rope(kv[..., rank:], cos, sin)
    valid = index >= 0
    for cache, rows in ((k_cache, rotated), (ckv_cache, compressed)):
        slots = cache.view(cache.shape[0] * cache.shape[1], *cache.shape[2:])
        slots[index[valid].long()] = rows.flatten(0, 2)[valid].reshape(-1, *cache.shape[2:])
    return k_cache, ckv_cache, rotated, compressed


def fused_infer_attention_v2(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    query_rope: torch.Tensor,
    key_rope: torch.Tensor,
    block_table: torch.Tensor,
    actual_seq_qlen: Sequence[int],
    actual_seq_kvlen: Sequence[int],
    softmax_scale: float = 1.0,
    input_layout: str = "BSH",
    sparse_mode: int = NO_MASK,
    atten_mask: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Layout TND_NTD: tokens ``[T, N, D]`` in, heads ``[N, T, D]`` out; one key head, in pages."""
    if input_layout != "TND_NTD" or sparse_mode not in (NO_MASK, CAUSAL) or key.shape[1] != 1:
        raise NotImplementedError(f"fused attention with layout {input_layout}, {key.shape}")
    queries = torch.cat([query, query_rope], -1)
    output = torch.zeros_like(query)
    start = 0
    for index, (end, length) in enumerate(zip(actual_seq_qlen, actual_seq_kvlen, strict=False)):
        if end > start and length:
            blocks = block_table[index, : -(-length // key.shape[2])].long()
            compressed = key[blocks].reshape(-1, 1, key.shape[-1])[:length]
            rotary = key_rope[blocks].reshape(-1, 1, key_rope.shape[-1])[:length]
            keys = torch.cat([compressed, rotary], -1)
            output[start:end] = attend(
                queries[start:end], keys, compressed, softmax_scale, sparse_mode == CAUSAL
            )
        start = end
    return output.transpose(0, 1).contiguous(), torch.zeros(1)


def transpose_batchmatmul(
    x: torch.Tensor, weight: torch.Tensor, *, perm_y: Sequence[int] = (1, 0, 2), **_: Any
) -> torch.Tensor:
    """A batched product with its axes in another order."""
    return torch.bmm(x, weight).permute(*perm_y).contiguous()


OPERATORS: dict[str, Callable[..., Any]] = {
    "npu::npu_interleave_rope": interleave_rope,
    "npu::npu_kv_rmsnorm_rope_cache": kv_rmsnorm_rope_cache,
    "npu::npu_fused_infer_attention_score_v2": fused_infer_attention_v2,
    "npu::npu_transpose_batchmatmul": transpose_batchmatmul,
}
