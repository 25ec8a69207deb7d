# SPDX-License-Identifier: Apache-2.0
"""Rotate the small models with AMD Quark; see README.md for the environment and the command."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from quark.torch import ModelQuantizer, export_safetensors
from quark.torch.quantization.config.config import (
    Int8PerChannelSpec,
    QConfig,
    QLayerConfig,
    RotationConfig,
)
from transformers import AutoModelForCausalLM

from tools.rotated_exports.float_model import write_fixture, write_float_model

COMMAND = "python -m tools.rotated_exports.make_quark"
VOCABULARY = 384
SEED = 5

LAYER = "model.layers.layer_id."
BEFORE = "model.layers.pre_layer_id."

CASES = {
    "quark-r1": (96, {"r1": True}),
    "quark-r1-random": (96, {"r1": True, "random_r1": True}),
}


def stations() -> dict[str, list[dict[str, object]]]:
    """What writes the stream, which norm follows and what reads it, as the tool wants to know."""

    def attention(writer: str) -> dict[str, object]:
        readers = [f"{LAYER}self_attn.{part}_proj" for part in "qkv"]
        return _station(writer, f"{LAYER}input_layernorm", readers)

    mlp = _station(
        f"{LAYER}self_attn.o_proj",
        f"{LAYER}post_attention_layernorm",
        [f"{LAYER}mlp.gate_proj", f"{LAYER}mlp.up_proj"],
    )
    return {
        "first_layer": [attention("model.embed_tokens"), mlp],
        "middle_layers": [attention(f"{BEFORE}mlp.down_proj"), mlp],
        "last_layer": [_station(f"{LAYER}mlp.down_proj", "model.norm", ["lm_head"])],
    }


def _station(writer: str, norm: str, readers: list[str]) -> dict[str, object]:
    return {"prev_modules": [writer], "norm_module": norm, "next_modules": readers}


def main() -> None:
    """Write the fixtures."""
    with tempfile.TemporaryDirectory() as name:
        for case, (hidden, options) in CASES.items():
            source = Path(name, f"float-{hidden}")
            if not source.exists():
                write_float_model(source, hidden, VOCABULARY)
            torch.manual_seed(SEED)
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
            weight = Int8PerChannelSpec(symmetric=True, is_dynamic=False, ch_axis=0)
            rotation = RotationConfig(stations(), **options)
            config = QConfig(
                global_quant_config=QLayerConfig(weight=weight.to_quantization_spec()),
                exclude=["lm_head"],
                algo_config=[rotation],
            )
            quantizer = ModelQuantizer(config)
            frozen = quantizer.freeze(quantizer.quantize_model(model))
            export_safetensors(frozen, str(Path(name, case)))
            provenance = {"command": COMMAND, "amd-quark": version("amd-quark")}
            write_fixture(Path(name, case), case, provenance)


if __name__ == "__main__":
    main()
