# SPDX-License-Identifier: Apache-2.0
"""A tiny Qwen3-MoE with random weights, the same ones on every machine.

It shares the reference pair's tokenizer. Nothing is trained: a mixture of experts is here to show
that its quantised layers are computed right and that its states reach a draft un-rotated, and both
show on any weights.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TOKENIZER = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "reference_pair" / "target"
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class MoeSettings:
    """48 = 12 * 4: a full-size Hadamard rotation needs a factor of order 12."""

    hidden_size: int = 48
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    experts: int = 8
    experts_per_token: int = 2
    expert_size: int = 40
    vocabulary: int = 2048
    end_token: int = 2044
    seed: int = 17


SETTINGS = MoeSettings()


def write_float_model(folder: Path, settings: MoeSettings = SETTINGS) -> Path:
    """Write the model in bf16 with its tokenizer, as transformers would save it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(settings), indent=2) + "\n")
    stored = {name: value.to(torch.bfloat16) for name, value in _tensors(settings).items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    add_tokenizer(folder)
    return folder


def add_tokenizer(folder: Path) -> None:
    """Copy the reference pair's tokenizer into a checkpoint that has none."""
    for name in TOKENIZER_FILES:
        shutil.copyfile(TOKENIZER / name, folder / name)


def _config(settings: MoeSettings) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "dtype": "bfloat16",
        "eos_token_id": settings.end_token,
        "head_dim": settings.head_dim,
        "hidden_act": "silu",
        "hidden_size": settings.hidden_size,
        "intermediate_size": 4 * settings.hidden_size,
        "max_position_embeddings": 2048,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": settings.expert_size,
        "norm_topk_prob": True,
        "num_attention_heads": settings.heads,
        "num_experts": settings.experts,
        "num_experts_per_tok": settings.experts_per_token,
        "num_hidden_layers": settings.layers,
        "num_key_value_heads": settings.kv_heads,
        "pad_token_id": settings.end_token,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": settings.vocabulary,
    }


def _tensors(settings: MoeSettings) -> Tensors:
    # Uniform numbers are whole multiples of 2**-24, so no machine rounds them differently.
    generator = torch.Generator().manual_seed(settings.seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    def weight(outputs: int, inputs: int) -> torch.Tensor:
        return uniform(outputs, inputs) * (3 / inputs) ** 0.5

    def scale(size: int) -> torch.Tensor:
        return 1 + uniform(size) / 2

    hidden, expert = settings.hidden_size, settings.expert_size
    query, key = settings.heads * settings.head_dim, settings.kv_heads * settings.head_dim
    tensors: Tensors = {
        "model.embed_tokens.weight": uniform(settings.vocabulary, hidden)
        * (1 + uniform(settings.vocabulary, 1) / 2),
        "model.norm.weight": scale(hidden),
        "lm_head.weight": weight(settings.vocabulary, hidden) * 2,
    }
    for layer in range(settings.layers):
        name = f"model.layers.{layer}."
        tensors |= {
            name + "input_layernorm.weight": scale(hidden),
            name + "self_attn.q_proj.weight": weight(query, hidden),
            name + "self_attn.k_proj.weight": weight(key, hidden),
            name + "self_attn.v_proj.weight": weight(key, hidden),
            name + "self_attn.o_proj.weight": weight(hidden, query),
            name + "self_attn.q_norm.weight": scale(settings.head_dim),
            name + "self_attn.k_norm.weight": scale(settings.head_dim),
            name + "post_attention_layernorm.weight": scale(hidden),
            name + "mlp.gate.weight": weight(settings.experts, hidden),
        }
        for index in range(settings.experts):
            prefix = f"{name}mlp.experts.{index}."
            tensors |= {
                prefix + "gate_proj.weight": weight(expert, hidden),
                prefix + "up_proj.weight": weight(expert, hidden),
                prefix + "down_proj.weight": weight(hidden, expert),
            }
    return tensors
