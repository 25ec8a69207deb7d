# SPDX-License-Identifier: Apache-2.0
"""Run an msModelSlim W8A8 checkpoint in plain torch, with the integer arithmetic emulated in fp32.

Formulas (msModelSlim's own): static x_q = clamp(round(x / input_scale + input_offset)),
y = (x_q W8^T + quant_bias) * deq_scale; dynamic x_q = round(x / s) with s = max|x| / 127 per token,
y = (x_q W8^T) * s * weight_scale.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM


def load_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder by name (`optional/` not included)."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return tensors


class StaticLinear(nn.Module):
    def __init__(self, tensors: dict[str, Tensor], name: str) -> None:
        super().__init__()
        self.weight = tensors[f"{name}.weight"].float()
        self.scale = tensors[f"{name}.input_scale"].float()
        self.offset = tensors[f"{name}.input_offset"].float()
        self.bias = tensors[f"{name}.quant_bias"].float()
        self.deq = tensors[f"{name}.deq_scale"].float()

    def forward(self, x: Tensor) -> Tensor:
        quantised = (x.float() / self.scale + self.offset).round().clamp(-128, 127)
        return ((quantised @ self.weight.T + self.bias) * self.deq).to(x.dtype)


class DynamicLinear(nn.Module):
    def __init__(self, tensors: dict[str, Tensor], name: str) -> None:
        super().__init__()
        self.weight = tensors[f"{name}.weight"].float()
        self.scale = tensors[f"{name}.weight_scale"].float().flatten()

    def forward(self, x: Tensor) -> Tensor:
        step = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-8) / 127
        quantised = (x.float() / step).round().clamp(-128, 127)
        return (quantised @ self.weight.T * self.scale * step).to(x.dtype)


_LINEAR = {"W8A8": StaticLinear, "W8A8_DYNAMIC": DynamicLinear}


def load_quantised(folder: Path) -> Qwen3ForCausalLM:
    """The checkpoint as a transformers model in fp32."""
    tensors = load_weights(folder)
    description = json.loads((folder / "quant_model_description.json").read_text("utf-8"))
    config = Qwen3Config.from_pretrained(folder)
    model = Qwen3ForCausalLM(config).float().eval()
    floats = {k: v.float() for k, v in tensors.items() if description.get(k) == "FLOAT"}
    model.load_state_dict(floats, strict=False)
    for name, module in list(model.named_modules()):
        kind = description.get(f"{name}.weight")
        if isinstance(module, nn.Linear) and kind != "FLOAT":
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, _LINEAR[kind](tensors, name))
    return model.requires_grad_(False)


def load_rotation(folder: Path) -> Tensor:
    """The fp32 rotation Q [H, H] that the description points to."""
    description = json.loads((folder / "quant_model_description.json").read_text("utf-8"))
    relative = description["optional"]["quarot"]["rotation_map"]["global_rotation"]
    return load_file(folder / relative)["global_rotation"]


def agreement(reference: Qwen3ForCausalLM, other: Qwen3ForCausalLM, tokens: Tensor) -> float:
    """Share of positions of `tokens` [B, T] where both models prefer the same next token."""
    with torch.no_grad():
        ours = reference(input_ids=tokens, use_cache=False).logits.argmax(-1)
        theirs = other(input_ids=tokens, use_cache=False).logits.argmax(-1)
    return float((ours == theirs).float().mean())
