# SPDX-License-Identifier: Apache-2.0
"""Un-rotating rows of a token table that belongs to the target.

The host puts the target's embedding module into the draft's inner model after loading. Neither that
module nor its table may change, so the draft's *look-up* is extended: the inner model gets a
subclass of its own class whose ``embed_input_ids`` un-rotates what the host's returns. A method of
the class (not a function stored on the instance) is what ``torch.compile`` traces like the host's
own code, and buffers are what it lifts as inputs of the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from vllm_eagle3_quarot.rotation import Plan


class UnrotatedLookup:
    """Goes before the inner model class of a draft that shares its target's rotated table."""

    embed_tokens: Any
    quarot_signs: torch.Tensor
    quarot_factor: torch.Tensor
    quarot_power: int

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Rows ``E'[ids] Qᵀ`` ``[T, H]`` for ids ``[T]``, in the table's dtype."""
        plan = (self.quarot_signs, self.quarot_factor, self.quarot_power)
        unrotated: torch.Tensor
        if is_plain_table(self.embed_tokens):
            table = self.embed_tokens.weight
            unrotated = torch.ops.eagle3_quarot.embedding_unrotate(
                input_ids, table, *plan, 0, table.shape[0]
            )
            return unrotated
        # Look-up and sum over shards are linear, so un-rotating their result is right as well.
        rows = super().embed_input_ids(input_ids)  # type: ignore[misc]
        unrotated = torch.ops.eagle3_quarot.unrotate(rows, *plan)
        return unrotated


def is_plain_table(embedding: Any) -> bool:
    """True when a look-up in ``embedding`` is nothing but gathering rows of ``weight``.

    Known of vLLM's own class alone. vllm-ascend's may split the rows of a step between ranks or
    exchange them (flash-comm, embedding parallelism), so it is called, and what it returns is
    un-rotated.
    """
    weight = getattr(embedding, "weight", None)
    return (
        type(embedding).__name__ == "VocabParallelEmbedding"
        and getattr(embedding, "tp_size", 0) == 1
        and isinstance(weight, torch.Tensor)
        and weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
    )


def unrotate_shared_embedding(inner: Any, plan: Plan) -> None:
    """Make ``inner.embed_input_ids`` un-rotate; everything else of ``inner`` stays as it is."""
    cls = type(inner)
    inner.__class__ = type(f"QuaRot{cls.__name__}", (UnrotatedLookup, cls), {})
    inner.register_buffer("quarot_signs", plan.signs, persistent=False)
    inner.register_buffer("quarot_factor", plan.factor, persistent=False)
    inner.quarot_power = plan.power
