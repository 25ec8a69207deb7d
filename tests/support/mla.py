# SPDX-License-Identifier: Apache-2.0
"""MLA drafts on a platform without an MLA attention backend.

vLLM's CPU platform has none ("MLA is not supported on CPU"), so the innermost module, which only
turns queries and latent keys into attention outputs, is replaced by plain torch over one prompt.
Draft class, layers, projections, rotary embedding and loading are vLLM's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.support.drafts import DraftSpec

QUERY_RANK, LATENT_RANK = 24, 32
NOPE, ROPE, VALUE = 16, 8, 12
HEADS = 2


class PromptAttention(torch.nn.Module):
    """In the place of vLLM's ``MLAAttention``: causal attention over one prompt, no cache."""

    def __init__(self, *, scale: float, kv_b_proj: torch.nn.Module, **_: Any) -> None:
        super().__init__()
        self.scale = scale
        # Not a submodule: the draft's layer owns it.
        self.expand = lambda latent: kv_b_proj(latent)[0]

    def forward(
        self, q: torch.Tensor, latent: torch.Tensor, k_rope: torch.Tensor, output_shape: Any
    ) -> torch.Tensor:
        count = q.shape[0]
        keys, values = self.expand(latent).view(count, HEADS, NOPE + VALUE).split([NOPE, VALUE], -1)
        keys = torch.cat([keys, k_rope.expand(count, HEADS, ROPE)], -1)
        attended = torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(0, 1) for x in (q, keys, values)), is_causal=True, scale=self.scale
        )
        return attended.transpose(0, 1).reshape(output_shape)


def write_mla_draft(
    folder: Path, spec: DraftSpec, architecture: str, table: torch.Tensor | None
) -> Path:
    """Write ``spec`` with an MLA layer in the place of its attention."""
    tensors = spec.tensors(table)
    for name in [name for name in tensors if ".self_attn." in name]:
        del tensors[name]
    generator = torch.Generator().manual_seed(spec.seed + 1)
    shapes = {
        "q_a_proj": (QUERY_RANK, 2 * spec.hidden),
        "q_b_proj": (HEADS * (NOPE + ROPE), QUERY_RANK),
        "kv_a_proj_with_mqa": (LATENT_RANK + ROPE, 2 * spec.hidden),
        "kv_b_proj": (HEADS * (NOPE + VALUE), LATENT_RANK),
        "o_proj": (spec.hidden, HEADS * VALUE),
    }
    for name, shape in shapes.items():
        value = torch.randn(*shape, generator=generator) * shape[1] ** -0.5
        tensors[f"midlayer.self_attn.{name}.weight"] = value
    for name, size in {"q_a_layernorm": QUERY_RANK, "kv_a_layernorm": LATENT_RANK}.items():
        value = 0.5 + torch.rand(size, generator=generator)
        tensors[f"midlayer.self_attn.{name}.weight"] = value
    config = {
        **spec.config(),
        "architectures": [architecture],
        "model_type": "deepseek_v2",
        "hidden_act": "silu",
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "q_lora_rank": QUERY_RANK,
        "kv_lora_rank": LATENT_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 128,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }
    del config["head_dim"]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder
