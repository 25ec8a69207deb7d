# SPDX-License-Identifier: Apache-2.0
"""The proposer's own operator of vllm-ascend: inputs of a draft that proposes in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def copy_and_expand_eagle_inputs(
    target_token_ids: torch.Tensor,
    target_positions: torch.Tensor,
    next_token_ids: torch.Tensor,
    query_start_loc: torch.Tensor,
    query_end_loc: torch.Tensor,
    padding_token_id: int,
    parallel_drafting_token_id: int,
    num_padding_slots_per_request: int,
    shift_input_ids: bool,
    total_draft_tokens: int,
) -> tuple[torch.Tensor, ...]:
    """Each request's valid tokens, the token just sampled, slots to draft in, rejected slots.

    With ``shift_input_ids`` a request loses its first token, since states are one step behind.
    Defined by vLLM's Triton kernel of the same name.

    Returns:
        ids, positions, which slots were rejected, which are masked, the slots to sample from
        (request by request), and where each input token's state goes.
    """
    ids = torch.full((total_draft_tokens,), padding_token_id, dtype=torch.int32)
    positions = torch.zeros(total_draft_tokens, dtype=torch.int32)
    rejected = torch.zeros(total_draft_tokens, dtype=torch.bool)
    masked = torch.zeros(total_draft_tokens, dtype=torch.bool)
    sampled: list[int] = []
    mapping = torch.zeros(target_token_ids.shape[0], dtype=torch.int32)
    shift = int(shift_input_ids)
    slots = num_padding_slots_per_request
    for request, token in enumerate(next_token_ids.tolist()):
        start, after, last = (
            int(query_start_loc[request]),
            int(query_start_loc[request + 1]),
            int(query_end_loc[request]),
        )
        out = start + request * (slots - shift)
        valid = last - start + 1 - shift
        new = out + valid
        end = new + slots
        ids[out:new] = target_token_ids[start + shift : start + shift + valid]
        ids[new] = token
        ids[new + 1 : end] = parallel_drafting_token_id
        first = int(target_positions[start])
        positions[out:end] = torch.arange(first, first + valid + slots, dtype=torch.int32)
        masked[new + 1 : end] = True
        rejected[end : end + after - last - 1] = True
        sampled.extend(range(new, end))
        mapping[start:after] = torch.arange(out, out + after - start, dtype=torch.int32)
    return ids, positions, rejected, masked, torch.tensor(sampled, dtype=torch.int32), mapping


OPERATORS: dict[str, Callable[..., Any]] = {
    "_C_ascend::npu_copy_and_expand_eagle_inputs": copy_and_expand_eagle_inputs,
}
