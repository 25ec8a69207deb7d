# SPDX-License-Identifier: Apache-2.0
"""A quantised Qwen3 checkpoint evaluated without vLLM.

Independent of the code under test: the float parts are transformers' own, and every quantised
linear layer is evaluated from its stored tensors as the format defines it.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, Qwen3ForCausalLM

Tensors = dict[str, torch.Tensor]


class StaticLinear(torch.nn.Module):
    """``W8A8``, in the module's dtype."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        scale = tensors["deq_scale"]
        if scale.dtype is torch.int64:
            scale = scale.to(torch.int32).view(torch.float32)
        self.register_buffer("scale", scale.to(torch.float32))
        for leaf in ("weight", "quant_bias", "input_scale", "input_offset"):
            self.register_buffer(leaf, tensors[leaf].to(torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_q = (x / self.input_scale + self.input_offset).round().clamp(-128, 127)
        return (x_q @ self.weight.t() + self.quant_bias) * self.scale


class DynamicLinear(torch.nn.Module):
    """``W8A8_DYNAMIC`` without a bias, in the module's dtype."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self.register_buffer("weight", tensors["weight"].to(torch.float32))
        self.register_buffer("scale", tensors["weight_scale"].flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_scale = x.abs().amax(dim=-1, keepdim=True) / 127
        return ((x / x_scale).round() @ self.weight.t()) * x_scale * self.scale


LINEAR = {"W8A8": StaticLinear, "W8A8_DYNAMIC": DynamicLinear}


def reference_model(folder: Path, dtype: torch.dtype) -> Qwen3ForCausalLM:
    """The checkpoint in ``folder``, evaluated in ``dtype``."""
    tensors: Tensors = {}
    for shard in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(shard))
    types = json.loads((folder / "quant_model_description.json").read_text())
    config = AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    model = Qwen3ForCausalLM(config)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and types[f"{name}.weight"] in LINEAR:
            stored = {
                leaf: tensors[f"{name}.{leaf}"]
                for leaf in (
                    "weight",
                    "quant_bias",
                    "deq_scale",
                    "input_scale",
                    "input_offset",
                    "weight_scale",
                )
                if f"{name}.{leaf}" in tensors
            }
            model.set_submodule(name, LINEAR[types[f"{name}.weight"]](stored))
    state = {name: tensor for name, tensor in tensors.items() if types.get(name) == "FLOAT"}
    missing, unexpected = model.load_state_dict(state, strict=False)
    quantised = {name for name, _ in model.named_buffers()}
    assert set(missing) <= quantised and not unexpected
    return model.to(dtype).eval()


@torch.inference_mode()
def log_probabilities(model: Qwen3ForCausalLM, tokens: list[int]) -> torch.Tensor:
    """``[len(tokens), V]``: log-probabilities of what follows each token."""
    return model(torch.tensor([tokens])).logits[0].log_softmax(dim=-1)
