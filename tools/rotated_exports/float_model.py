# SPDX-License-Identifier: Apache-2.0
"""The model that the tools are given: a Qwen3 of two layers, random weights and random norms.

Two, because Quark never gets to the head of a model of one layer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "rotated_exports"
TOKENIZER = Path(__file__).parents[2] / "tests" / "fixtures" / "reference_pair" / "target"

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2, 2, 1, 32

#: Row means of the embedding, in standard deviations: centring it is visible.
MEAN = 0.3

SEED = 21


def write_float_model(folder: Path, hidden: int, vocabulary: int) -> Path:
    """Write the model, bf16, in the layout of transformers; no tokenizer."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": hidden,
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
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(_tensors(hidden, vocabulary), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_fixture(made: Path, name: str, provenance: dict[str, str]) -> None:
    """Copy what the tests read of the checkpoint in ``made``, and write where it came from."""
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    skipped = shutil.ignore_patterns("tokenizer*", "vocab.json", "merges.txt", "*.jinja", "added_*")
    shutil.copytree(made, folder, ignore=skipped)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (folder / "PROVENANCE.json").write_text(json.dumps(provenance, indent=2) + "\n")


def _tensors(hidden: int, vocabulary: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)

    def weight(*shape: int) -> torch.Tensor:
        drawn = torch.randn(*shape, generator=generator) * shape[-1] ** -0.5
        return drawn.to(torch.bfloat16)

    def scale(size: int) -> torch.Tensor:
        return (0.5 + torch.rand(size, generator=generator)).to(torch.bfloat16)

    table = torch.randn(vocabulary, hidden, generator=generator)
    lengths = 0.5 + torch.rand(vocabulary, 1, generator=generator)
    table = (table + MEAN * torch.randn(vocabulary, 1, generator=generator)) * lengths
    tensors = {
        "model.embed_tokens.weight": table.to(torch.bfloat16),
        "model.norm.weight": scale(hidden),
        "lm_head.weight": weight(vocabulary, hidden),
    }
    for number in range(LAYERS):
        layer, attention = f"model.layers.{number}.", f"model.layers.{number}.self_attn."
        tensors |= {
            layer + "input_layernorm.weight": scale(hidden),
            layer + "post_attention_layernorm.weight": scale(hidden),
            attention + "q_proj.weight": weight(HEADS * HEAD_DIM, hidden),
            attention + "k_proj.weight": weight(KV_HEADS * HEAD_DIM, hidden),
            attention + "v_proj.weight": weight(KV_HEADS * HEAD_DIM, hidden),
            attention + "o_proj.weight": weight(hidden, HEADS * HEAD_DIM),
            attention + "q_norm.weight": scale(HEAD_DIM),
            attention + "k_norm.weight": scale(HEAD_DIM),
            layer + "mlp.gate_proj.weight": weight(hidden, hidden),
            layer + "mlp.up_proj.weight": weight(hidden, hidden),
            layer + "mlp.down_proj.weight": weight(hidden, hidden),
        }
    return tensors
