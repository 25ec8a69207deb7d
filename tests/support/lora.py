# SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter for the reference target, and the same adapter for its rotated copy.

An adapter is trained on original weights. Where its matrices touch the residual stream they have to
follow the rotation, as the weights did. A layer that reads the stream behind a norm of scale ``g``
becomes ``(W + B A) diag(g) Q``, so ``A' = A diag(g) Q``; a layer that writes it becomes
``Qᵀ (W + B A)``, so ``B' = Qᵀ B``.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

RANK = 8

#: Large enough to change greedy text, small enough to leave it text.
STRENGTH = 0.3

PREFIX = "base_model.model."


def write_adapter(folder: Path, original: Path, q: torch.Tensor | None) -> Path:
    """Write the adapter for ``original``, or for its copy rotated by ``q``.

    It changes ``q_proj``, which reads the residual stream, and ``o_proj``, which writes it.
    """
    weights = load_file(original / "model.safetensors")
    layers = json.loads((original / "config.json").read_text())["num_hidden_layers"]
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for layer in range(layers):
        for module in ("q_proj", "o_proj"):
            name = f"model.layers.{layer}.self_attn.{module}"
            rows, columns = weights[f"{name}.weight"].shape
            a = torch.randn(RANK, columns, generator=generator, dtype=torch.float64)
            b = torch.randn(rows, RANK, generator=generator, dtype=torch.float64)
            a *= columns**-0.5
            b *= STRENGTH * float(weights[f"{name}.weight"].float().norm()) / (rows * RANK) ** 0.5
            if q is not None and module == "q_proj":
                scale = weights[f"model.layers.{layer}.input_layernorm.weight"].double()
                a = (a * scale) @ q.double()
            elif q is not None:
                b = q.double().T @ b
            tensors[f"{PREFIX}{name}.lora_A.weight"] = a.float().contiguous()
            tensors[f"{PREFIX}{name}.lora_B.weight"] = b.float().contiguous()
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": ["q_proj", "o_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
