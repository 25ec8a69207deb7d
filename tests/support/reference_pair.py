# SPDX-License-Identifier: Apache-2.0
"""The committed reference pair, and drafts of other formats made from its draft."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

PAIR = Path(__file__).parents[1] / "fixtures" / "reference_pair"
FLOAT_TARGET = PAIR / "target"
ROTATED_TARGET = PAIR / "target-w8a8-quarot"
DRAFT = PAIR / "draft"

Tensors = dict[str, torch.Tensor]


def prompts(count: int) -> list[str]:
    """The first held-out prompts of the pair."""
    stored: list[str] = json.loads((PAIR / "prompts.json").read_text())["completions"]
    return stored[:count]


def variant(
    folder: Path,
    change_tensors: Callable[[Tensors], Tensors] = lambda tensors: tensors,
    change_config: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: config,
    pickled: bool = False,
) -> Path:
    """Write the reference draft with changed tensors or configuration."""
    shutil.copytree(DRAFT, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((DRAFT / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(change_config(config)))
    tensors = change_tensors(load_file(DRAFT / "model.safetensors"))
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    if pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def native_names(tensors: Tensors) -> Tensors:
    """vLLM's names of the decoder layer."""
    return {name.replace("midlayer.", "layers.0."): value for name, value in tensors.items()}


def speculators_config(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as the speculators library writes it."""
    outer = ("architectures", "draft_vocab_size")
    layer = {key: value for key, value in config.items() if key not in outer}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": config["draft_vocab_size"],
        "norm_before_residual": False,
        "target_hidden_size": None,
        "transformer_layer_config": {**layer, "architectures": ["LlamaForCausalLM"]},
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": 3,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "verifier": {
                "name_or_path": "the float target",
                "architectures": ["Qwen3ForCausalLM"],
            },
        },
    }


def without(*names: str) -> Callable[[Tensors], Tensors]:
    """Drop tensors by exact name."""
    return lambda tensors: {n: v for n, v in tensors.items() if n not in names}


def quantised(tensors: Tensors) -> Tensors:
    """int8 weights with one scale per output channel for every linear layer of the draft."""
    result: Tensors = {}
    for name, value in tensors.items():
        is_linear = name.endswith("proj.weight") or name == "fc.weight"
        if not is_linear:
            result[name] = value
            continue
        scale = value.float().abs().amax(dim=1, keepdim=True) / 127
        result[name] = (value.float() / scale).round().to(torch.int8)
        result[name.removesuffix("weight") + "weight_scale"] = scale
    return result


def quantised_config(config: dict[str, Any]) -> dict[str, Any]:
    """compressed-tensors' description of :func:`quantised`, activations quantised per token."""
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**eight_bits, "strategy": "channel", "dynamic": False},
        "input_activations": {**eight_bits, "strategy": "token", "dynamic": True},
    }
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    return {**config, "quantization_config": quantization}
