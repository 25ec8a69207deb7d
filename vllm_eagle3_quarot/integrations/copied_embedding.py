# SPDX-License-Identifier: Apache-2.0
"""Filling a draft's own token table where the target's cannot be shared.

With several pipeline stages the host leaves the table of a draft that brings none as it was
allocated. Here it gets the original rows, un-rotated from the target's files; of a table that is
split over the vocabulary every rank reads its own part.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_eagle3_quarot.draft.copied_embedding import CopiedEmbedding


def fill_embedding(module: Any, copied: CopiedEmbedding) -> None:
    """Fill the table of ``module``, a ``VocabParallelEmbedding``; rows of padding get zeros."""
    table: torch.Tensor = module.weight.data
    shard = module.shard_indices
    start, stop = shard.org_vocab_start_index, shard.org_vocab_end_index
    for first, rows in copied.blocks(start, stop):
        table[first - start : first - start + len(rows)].copy_(rows)
    table[stop - start :].zero_()
