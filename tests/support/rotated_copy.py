# SPDX-License-Identifier: Apache-2.0
"""Rotating a float Qwen3, Qwen3-MoE or dense DeepSeek checkpoint by any Q in fp64.

It is independent of the tool and of the package.

``h' = h Q``: tables and writers of the residual stream are multiplied as in the design's table,
norms are folded into what reads them and become ones.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import POINTER, write_json, write_sidecar

ATTENTION_READERS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
LATENT_READERS = ("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa")


def readers(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Linear layers of one decoder layer that read the residual stream, by the norm before them."""
    experts = [f"mlp.experts.{number}." for number in range(config.get("num_experts", 0))]
    mlp = [prefix + name for prefix in experts or ["mlp."] for name in ("gate_proj", "up_proj")]
    router = ["mlp.gate"] if experts else []
    return {
        "input_layernorm": LATENT_READERS if "kv_lora_rank" in config else ATTENTION_READERS,
        "post_attention_layernorm": (*router, *mlp),
    }


def writers(config: dict[str, Any]) -> tuple[str, ...]:
    """Linear layers of one decoder layer that write to the residual stream."""
    experts = [f"mlp.experts.{number}." for number in range(config.get("num_experts", 0))]
    return ("self_attn.o_proj", *(prefix + "down_proj" for prefix in experts or ["mlp."]))


def copy_in_fp32(source: Path, folder: Path) -> Path:
    """The checkpoint as it is, stored in fp32."""
    return write_copy(source, folder, load_file(source / "model.safetensors"))


def rotated_copy(source: Path, folder: Path, q: torch.Tensor) -> Path:
    """The checkpoint rotated by ``q``, stored in fp32 with a sidecar in msModelSlim's layout."""
    tensors = {k: v.double() for k, v in load_file(source / "model.safetensors").items()}
    rotation = q.double()
    config = json.loads((source / "config.json").read_text())
    tensors["model.embed_tokens.weight"] @= rotation
    scale = tensors["model.norm.weight"]
    tensors["lm_head.weight"] = (tensors["lm_head.weight"] * scale) @ rotation
    tensors["model.norm.weight"] = torch.ones_like(scale)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm, names in readers(config).items():
            scale = tensors[f"{prefix}{norm}.weight"]
            for reader in names:
                name = f"{prefix}{reader}.weight"
                tensors[name] = (tensors[name] * scale) @ rotation
            tensors[f"{prefix}{norm}.weight"] = torch.ones_like(scale)
        for writer in writers(config):
            name = f"{prefix}{writer}.weight"
            tensors[name] = rotation.T @ tensors[name]
    write_copy(source, folder, tensors)
    write_sidecar(folder, q)
    types = {name: "FLOAT" for name in tensors}
    write_json(
        folder / "quant_model_description.json",
        {"version": "1.0.0", "model_quant_type": "FLOAT", "optional": POINTER, **types},
    )
    return folder


def write_copy(source: Path, folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """``source`` with other tensors, stored in fp32."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    config.pop("dtype", None)
    write_json(folder / "config.json", {**config, "torch_dtype": "float32"})
    stored = {name: value.float().contiguous() for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
