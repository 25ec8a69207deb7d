# SPDX-License-Identifier: Apache-2.0
"""A tiny Qwen3-VL target with random weights, as it is and rotated as msModelSlim rotates one.

The token table, the text layers and the head are rotated as in a text model. The projections that
hand image features to the text model write to the residual stream too, with their biases: that of
the merger and those of the deepstack mergers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import POINTER, embedding, write_json, write_sidecar
from tests.support.reference_pair import FLOAT_TARGET
from tests.support.rotated_copy import readers, writers

HIDDEN = 96
LAYERS = 3
TEXT = "model.language_model."
VISION_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
PROMPT = "<|vision_start|><|image_pad|><|vision_end|>"

#: Modules of the vision tower that write to the text model's residual stream.
VISION_WRITERS = (
    "model.visual.merger.linear_fc2",
    "model.visual.deepstack_merger_list.0.linear_fc2",
)


def vision_target(folder: Path) -> Path:
    """Write the target in fp32, with tokenizer and processor."""
    from transformers import (
        AutoTokenizer,
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    tokenizer = AutoTokenizer.from_pretrained(FLOAT_TARGET)
    tokenizer.add_special_tokens({"additional_special_tokens": VISION_TOKENS})
    start, end, image, video = tokenizer.convert_tokens_to_ids(VISION_TOKENS)
    config = Qwen3VLConfig(
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": HIDDEN,
            "intermediate_size": 128,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": 512,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_heads": 2,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        tie_word_embeddings=False,
    )
    torch.manual_seed(7)
    model = Qwen3VLForConditionalGeneration(config).float()
    tensors = model.state_dict()
    for name, value in tensors.items():
        if value.dim() > 1:
            torch.nn.init.normal_(value, std=value[0].numel() ** -0.5)
        elif "norm" in name:
            torch.nn.init.uniform_(value, 0.5, 1.5)
        else:
            torch.nn.init.normal_(value, std=0.1)
    tensors[TEXT + "embed_tokens.weight"] = embedding(len(tokenizer), HIDDEN)
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            patch_size=16, size={"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(patch_size=16),
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    _write(folder, tensors)
    return folder


def rotated_vision_copy(source: Path, folder: Path, q: torch.Tensor) -> Path:
    """The target rotated by ``q`` in fp64, stored in fp32, in msModelSlim's layout."""
    tensors = {
        name: value.double()
        for shard in sorted(source.glob("*.safetensors"))
        for name, value in load_file(shard).items()
    }
    rotation = q.double()
    tensors[TEXT + "embed_tokens.weight"] @= rotation
    folds = [(f"{TEXT}norm.weight", ["lm_head.weight"])]
    config = json.loads((source / "config.json").read_text())["text_config"]
    for layer in range(LAYERS):
        prefix = f"{TEXT}layers.{layer}."
        folds += [
            (f"{prefix}{norm}.weight", [f"{prefix}{reader}.weight" for reader in names])
            for norm, names in readers(config).items()
        ]
        for writer in writers(config):
            name = f"{prefix}{writer}.weight"
            tensors[name] = rotation.T @ tensors[name]
    for norm, names in folds:
        for name in names:
            tensors[name] = (tensors[name] * tensors[norm]) @ rotation
        tensors[norm] = torch.ones_like(tensors[norm])
    for writer in VISION_WRITERS:
        tensors[writer + ".weight"] = rotation.T @ tensors[writer + ".weight"]
        tensors[writer + ".bias"] = tensors[writer + ".bias"] @ rotation
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    _write(folder, tensors)
    write_sidecar(folder, q)
    types = {name: "FLOAT" for name in tensors}
    write_json(
        folder / "quant_model_description.json",
        {"version": "1.0.0", "model_quant_type": "FLOAT", "optional": POINTER, **types},
    )
    return folder


def picture(path: Path) -> Path:
    """A small picture of random pixels."""
    from PIL import Image

    pixels = torch.randint(0, 256, (64, 64, 3), generator=torch.Generator().manual_seed(1))
    Image.fromarray(pixels.byte().numpy()).save(path)
    return path


def draft_config(vocabulary: int) -> dict[str, Any]:
    """What the configuration of a draft for this target has besides its shape."""
    return {
        "architectures": ["Eagle3Qwen3vlForCausalLM"],
        "vocab_size": vocabulary,
        "eagle_aux_hidden_state_layer_ids": [0, 1, LAYERS],
        "rope_scaling": {
            "rope_type": "default",
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    }


def vocabulary_of(target: Path) -> int:
    """Number of words of the target's token table."""
    size: int = json.loads((target / "config.json").read_text())["text_config"]["vocab_size"]
    return size


def _write(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Two shards, the vision tower's first in the index."""
    shards = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    vision, text = shards.values()
    for name, value in tensors.items():
        (vision if name.startswith("model.visual.") else text)[name] = value.float().contiguous()
    for file, part in shards.items():
        save_file(part, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, part in shards.items() for name in part}
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
