# SPDX-License-Identifier: Apache-2.0
"""A target's tables as vLLM modules, and the host's own code that gives them to a draft."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


def target_modules(table: torch.Tensor, head: torch.Tensor) -> Any:
    """A stand-in for a loaded target: ``model.embed_tokens`` and ``lm_head`` with these tables.

    Must be called where a distributed environment exists (inside
    tests.support.engine.loaded_draft).
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        VocabParallelEmbedding,
    )

    vocabulary, hidden = table.shape
    target = torch.nn.Module()
    target.model = torch.nn.Module()
    target.model.embed_tokens = VocabParallelEmbedding(vocabulary, hidden, params_dtype=table.dtype)
    target.lm_head = ParallelLMHead(vocabulary, hidden, params_dtype=head.dtype)
    for module, values in ((target.model.embed_tokens, table), (target.lm_head, head)):
        module.weight_loader(module.weight, values)
        module.quant_method.process_weights_after_loading(module)
    return target


def share_as_the_host_does(draft: torch.nn.Module, target: Any) -> None:
    """Run vLLM's own sharing decisions of the V1 proposer on a loaded draft."""
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

    proposer = SimpleNamespace(
        model=draft,
        use_local_argmax_reduction=False,
        vllm_config=SimpleNamespace(speculative_config=None),
    )
    SpecDecodeBaseProposer._maybe_share_embeddings(proposer, target)
    SpecDecodeBaseProposer._maybe_share_lm_head(proposer, target)
