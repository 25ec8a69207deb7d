# SPDX-License-Identifier: Apache-2.0
"""A stand-in for vllm-ascend's draft class with a virtually wider hidden state.

Only vllm-ascend has it (``vllm_ascend/models/llama_eagle3_vwn.py``, read at 0.23.0). What matters
to a correction is what it shares with other drafts and where it differs, so that is what this class
has: its name, base class and module tree. The outer ``model.fc`` takes three aux states whatever
the configuration says; a layer has a ``fc`` of its own (``pre_vwn_layer.fc``) on another input,
which is not the target's; parallel drafting has a ``mask_hidden``. Layers cannot be run here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ReplicatedLinear
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM, LlamaModel
from vllm.model_executor.models.utils import get_draft_quant_config

from tests.support.drafts import DraftSpec

ARCHITECTURE = "LlamaForCausalLMVwnEagle3"

AUX_STATES = 3


def _projection(inputs: int, outputs: int, vllm_config: Any, prefix: str) -> ReplicatedLinear:
    return ReplicatedLinear(
        inputs,
        outputs,
        bias=False,
        quant_config=get_draft_quant_config(vllm_config),
        prefix=prefix,
        return_bias=False,
    )


class _InnerLayer(nn.Module):
    """Token and state side by side, through a ``fc`` of its own."""

    def __init__(self, vllm_config: Any, config: Any) -> None:
        super().__init__()
        size = config.hidden_size
        self.input_layernorm = RMSNorm(size, eps=config.rms_norm_eps)
        self.hidden_norm = RMSNorm(size, eps=config.rms_norm_eps)
        self.fc = _projection(2 * size, size, vllm_config, "layers.0.pre_vwn_layer.fc")

    def forward(self, embeds: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = self.fc(
            torch.cat([self.input_layernorm(embeds), self.hidden_norm(states)], -1)
        )
        return joined


class _Layer(nn.Module):
    def __init__(self, vllm_config: Any, config: Any) -> None:
        super().__init__()
        self.pre_vwn_layer = _InnerLayer(vllm_config, config)


class VwnLlamaModel(LlamaModel):
    """Inner model: the tree of the Llama one, with layers of another kind."""

    def __init__(self, *, vllm_config: Any, prefix: str = "", start_layer_id: int = 0) -> None:
        nn.Module.__init__(self)
        self.config = config = vllm_config.speculative_config.draft_model_config.hf_config
        self.vocab_size = config.vocab_size
        self.use_aux_hidden_state = True
        self.norm_before_fc = getattr(config, "norm_before_fc", False)
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([_Layer(vllm_config, config)])
        inputs = AUX_STATES * getattr(config, "target_hidden_size", config.hidden_size)
        self.input_norm = RMSNorm(inputs, eps=config.rms_norm_eps) if self.norm_before_fc else None
        self.fc_norm = None
        self.num_aux_hidden_states = AUX_STATES
        self.fc = _projection(inputs, config.hidden_size, vllm_config, f"{prefix}.fc")
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Eagle3VwnLlamaForCausalLM(Eagle3LlamaForCausalLM):
    """The name by which our plugin knows it."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        nn.Module.__init__(self)
        self.config = config = vllm_config.speculative_config.draft_model_config.hf_config
        if getattr(config, "draft_vocab_size", None) is None:
            config.draft_vocab_size = config.vocab_size
        self.model = VwnLlamaModel(vllm_config=vllm_config, prefix="model")
        self.lm_head = ParallelLMHead(config.draft_vocab_size, config.hidden_size)
        self.logits_processor = LogitsProcessor(config.draft_vocab_size)
        self.draft_id_to_target_id = nn.Parameter(
            torch.zeros(config.draft_vocab_size, dtype=torch.long), requires_grad=False
        )
        self.use_parallel_drafting = vllm_config.speculative_config.parallel_drafting
        if self.use_parallel_drafting:
            mask = torch.zeros(1, AUX_STATES * config.hidden_size)
            self.register_buffer("mask_hidden", mask, persistent=False)


def write_vwn_draft(folder: Path, spec: DraftSpec, table: torch.Tensor) -> Path:
    """Write ``spec`` with a layer of this kind in the place of its own."""
    tensors = {n: v for n, v in spec.tensors(table).items() if not n.startswith("midlayer.")}
    generator = torch.Generator().manual_seed(spec.seed + 1)
    size, prefix = spec.hidden, "midlayer.pre_vwn_layer."
    inner = torch.randn(size, 2 * size, generator=generator) / size**0.5
    tensors[f"{prefix}fc.weight"] = inner
    for name in ("input_layernorm", "hidden_norm"):
        tensors[f"{prefix}{name}.weight"] = 0.5 + torch.rand(size, generator=generator)
    folder.mkdir(parents=True)
    config = {**spec.config(), "architectures": [ARCHITECTURE]}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
