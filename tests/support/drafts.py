# SPDX-License-Identifier: Apache-2.0
"""Whole Eagle3 drafts with random weights, in the formats in which they are published."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


@dataclass(frozen=True)
class DraftSpec:
    """Shape of a draft; ``extra`` goes into its configuration as it is."""

    hidden: int = 64
    target_hidden: int | None = None
    aux_states: int = 3
    vocabulary: int = 96
    draft_vocabulary: int | None = None
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    intermediate: int = 128
    layers: int = 1
    own_embedding: bool = True
    own_head: bool = True
    norm_before_fc: bool = False
    fc_norm: bool = False
    mask_hidden: bool = False
    seed: int = 11
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def input_size(self) -> int:
        """Width of one aux hidden state."""
        return self.target_hidden or self.hidden

    def config(self) -> dict[str, Any]:
        """``config.json`` in the plain format."""
        document: dict[str, Any] = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "draft_vocab_size": self.draft_vocabulary,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 256,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        }
        if self.target_hidden is not None:
            document["target_hidden_size"] = self.target_hidden
        if self.norm_before_fc:
            document["norm_before_fc"] = True
        if self.fc_norm:
            document["fc_norm"] = True
        if self.aux_states != 3:
            document["num_aux_hidden_states"] = self.aux_states
        return {**document, **self.extra}

    def tensors(self, table: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """All weights, fp32; ``table`` replaces the random embedding."""
        generator = torch.Generator().manual_seed(self.seed)

        def weight(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

        def scale(size: int) -> torch.Tensor:
            return 0.5 + torch.rand(size, generator=generator)

        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        tensors: dict[str, torch.Tensor] = {
            "fc.weight": weight(self.hidden, self.aux_states * self.input_size),
            "norm.weight": scale(self.hidden),
        }
        for layer in range(self.layers):
            name = f"layers.{layer}." if self.layers > 1 else "midlayer."
            width = 2 * self.hidden if layer == 0 else self.hidden
            tensors |= {
                name + "self_attn.q_proj.weight": weight(query, width),
                name + "self_attn.k_proj.weight": weight(key, width),
                name + "self_attn.v_proj.weight": weight(key, width),
                name + "self_attn.o_proj.weight": weight(self.hidden, query),
                name + "mlp.gate_proj.weight": weight(self.intermediate, self.hidden),
                name + "mlp.up_proj.weight": weight(self.intermediate, self.hidden),
                name + "mlp.down_proj.weight": weight(self.hidden, self.intermediate),
                name + "input_layernorm.weight": scale(self.hidden),
                name + "hidden_norm.weight": scale(self.hidden),
                name + "post_attention_layernorm.weight": scale(self.hidden),
            }
        if self.norm_before_fc:
            tensors["input_norm.weight"] = scale(self.aux_states * self.input_size)
        if self.fc_norm:
            for index in range(self.aux_states):
                tensors[f"fc_norm.{index}.weight"] = scale(self.input_size)
        if self.mask_hidden:
            tensors["mask_hidden"] = weight(1, self.aux_states * self.input_size)
        drawn = weight(self.vocabulary, self.hidden)  # drawn in any case: the head stays the same
        if self.own_embedding:
            tensors["embed_tokens.weight"] = drawn if table is None else table
        if self.own_head:
            tensors["lm_head.weight"] = weight(
                self.draft_vocabulary or self.vocabulary, self.hidden
            )
        if self.draft_vocabulary is not None:
            kept = torch.arange(self.draft_vocabulary) * 2
            tensors["d2t"] = kept - torch.arange(self.draft_vocabulary)
            tensors["t2d"] = torch.zeros(self.vocabulary, dtype=torch.bool).index_fill(
                0, kept, True
            )
        return tensors

    def write(
        self,
        folder: Path,
        table: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Path:
        """Write the draft as safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config()))
        stored = {
            name: value.to(dtype).contiguous() if value.is_floating_point() else value
            for name, value in self.tensors(table).items()
        }
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
