# SPDX-License-Identifier: Apache-2.0
"""What a draft computes from aux hidden states before its first layer, in fp64, as vLLM does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def read_draft(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Configuration and all tensors of a draft, whatever its files are called."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    return json.loads((folder / "config.json").read_text()), tensors


def combined(folder: Path, states: torch.Tensor) -> torch.Tensor:
    """``fc(norm(states))`` ``[T, H_draft]`` of states ``[T, A·H]``."""
    config, tensors = read_draft(folder)
    x = states.double()
    if config.get("norm_before_fc"):
        x = _norm(x, tensors["input_norm.weight"])
    if config.get("fc_norm"):
        scales = [tensors[f"fc_norm.{i}.weight"] for i in range(config["num_aux_hidden_states"])]
        slices = x.chunk(len(scales), dim=-1)
        x = torch.cat([_norm(s, scale) for s, scale in zip(slices, scales, strict=True)], dim=-1)
    return x @ tensors["fc.weight"].double().T


def combined_mask(folder: Path) -> torch.Tensor:
    """The same of the draft's own mask state ``[1, H_draft]``."""
    return combined(folder, read_draft(folder)[1]["mask_hidden"])


def _norm(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * scale.double()
