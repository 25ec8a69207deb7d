# SPDX-License-Identifier: Apache-2.0
"""A target and a draft with DeepSeek's latent attention, random weights, no experts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.ascend.targets import described
from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding, write_json

HIDDEN = 192
VOCABULARY = 2048
INTERMEDIATE = 256
LAYERS = 8  # the default aux layers 2, L/2, L-3 coincide in six
HEADS = 4
QUERY_RANK = 64
KV_RANK = 64
PLAIN, ROTARY, VALUE = 32, 32, 32

CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "q_lora_rank": QUERY_RANK,
    "kv_lora_rank": KV_RANK,
    "qk_nope_head_dim": PLAIN,
    "qk_rope_head_dim": ROTARY,
    "v_head_dim": VALUE,
    # Experts begin behind the last layer.
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": LAYERS,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    # As DeepSeek's own models; vllm-ascend reads these keys without asking for the type.
    "rope_scaling": {
        "type": "yarn",
        "factor": 2.0,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 1024,
    },
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


def _layer(prefix: str, width: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """One decoder layer whose attention reads ``width`` channels."""

    def weight(rows: int, columns: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(rows, columns, generator=generator) * columns**-0.5
        return drawn

    def scale(size: int) -> torch.Tensor:
        return 0.5 + torch.rand(size, generator=generator)

    tensors = {
        "self_attn.q_a_proj.weight": weight(QUERY_RANK, width),
        "self_attn.q_a_layernorm.weight": scale(QUERY_RANK),
        "self_attn.q_b_proj.weight": weight(HEADS * (PLAIN + ROTARY), QUERY_RANK),
        "self_attn.kv_a_proj_with_mqa.weight": weight(KV_RANK + ROTARY, width),
        "self_attn.kv_a_layernorm.weight": scale(KV_RANK),
        "self_attn.kv_b_proj.weight": weight(HEADS * (PLAIN + VALUE), KV_RANK),
        "self_attn.o_proj.weight": weight(HIDDEN, HEADS * VALUE),
        "mlp.gate_proj.weight": weight(INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": weight(INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": weight(HIDDEN, INTERMEDIATE),
        "input_layernorm.weight": scale(HIDDEN),
        "post_attention_layernorm.weight": scale(HIDDEN),
    }
    return {prefix + name: value for name, value in tensors.items()}


def latent_target(folder: Path) -> Path:
    """The unrotated target, fp32, with the reference pair's tokenizer."""
    shutil.copytree(
        pair.FLOAT_TARGET, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json")
    )
    config = {
        **CONFIG,
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": LAYERS,
        "eos_token_id": json.loads((pair.FLOAT_TARGET / "config.json").read_text())["eos_token_id"],
    }
    write_json(folder / "config.json", config)
    generator = torch.Generator().manual_seed(41)
    tensors = {
        "model.embed_tokens.weight": embedding(VOCABULARY, HIDDEN, seed=5),
        "model.norm.weight": 0.5 + torch.rand(HIDDEN, generator=generator),
        "lm_head.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator) * HIDDEN**-0.5,
    }
    for layer in range(LAYERS):
        tensors |= _layer(f"model.layers.{layer}.", HIDDEN, generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return described(folder)


def latent_draft(folder: Path) -> Path:
    """A DeepSeek-type Eagle3 draft with a token table of its own."""
    folder.mkdir(parents=True)
    config = {
        **CONFIG,
        # vLLM takes a draft of type deepseek_v3 for a prediction layer of DeepSeek's own (MTP).
        "model_type": "deepseek_v2",
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "num_hidden_layers": 1,
        "draft_vocab_size": VOCABULARY,
    }
    write_json(folder / "config.json", config)
    generator = torch.Generator().manual_seed(42)
    tensors = {
        "fc.weight": torch.randn(HIDDEN, 3 * HIDDEN, generator=generator) * (3 * HIDDEN) ** -0.5,
        "norm.weight": 0.5 + torch.rand(HIDDEN, generator=generator),
        "embed_tokens.weight": embedding(VOCABULARY, HIDDEN, seed=8),
        "lm_head.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator) * HIDDEN**-0.5,
        "midlayer.hidden_norm.weight": 0.5 + torch.rand(HIDDEN, generator=generator),
        **_layer("midlayer.", 2 * HIDDEN, generator),
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
