# SPDX-License-Identifier: Apache-2.0
"""A Qwen3-MoE model of a few hundred kilobytes with random weights, the same in every run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, EXPERTS, WIDTH = 64, 2, 1, 32, 2, 4, 32


def write_tiny_mixture(tokenizer: Path, folder: Path) -> Path:
    """Write the model to ``folder``, with the tokenizer of the model in ``tokenizer``."""
    source = json.loads((tokenizer / "config.json").read_text())
    vocabulary = source["vocab_size"]
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "moe_intermediate_size": WIDTH,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": source["eos_token_id"],
        "pad_token_id": source["pad_token_id"],
    }
    ignored = shutil.ignore_patterns("*.safetensors", "config.json")
    shutil.copytree(tokenizer, folder, ignore=ignored)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(_tensors(vocabulary), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _tensors(vocabulary: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(20)

    def weight(*shape: int) -> torch.Tensor:
        drawn = torch.randn(*shape, generator=generator) * shape[-1] ** -0.5
        return drawn.to(torch.bfloat16)

    def scale(size: int) -> torch.Tensor:
        return (0.5 + torch.rand(size, generator=generator)).to(torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": weight(vocabulary, HIDDEN),
        "model.norm.weight": scale(HIDDEN),
        "lm_head.weight": weight(vocabulary, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        tensors |= {
            prefix + "input_layernorm.weight": scale(HIDDEN),
            prefix + "post_attention_layernorm.weight": scale(HIDDEN),
            attention + "q_proj.weight": weight(HEADS * HEAD_DIM, HIDDEN),
            attention + "k_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            attention + "v_proj.weight": weight(KV_HEADS * HEAD_DIM, HIDDEN),
            attention + "o_proj.weight": weight(HIDDEN, HEADS * HEAD_DIM),
            attention + "q_norm.weight": scale(HEAD_DIM),
            attention + "k_norm.weight": scale(HEAD_DIM),
            mlp + "gate.weight": weight(EXPERTS, HIDDEN),
        }
        for expert in range(EXPERTS):
            name = f"{mlp}experts.{expert}."
            tensors |= {
                name + "gate_proj.weight": weight(WIDTH, HIDDEN),
                name + "up_proj.weight": weight(WIDTH, HIDDEN),
                name + "down_proj.weight": weight(HIDDEN, WIDTH),
            }
    return tensors
