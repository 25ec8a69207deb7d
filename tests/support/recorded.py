# SPDX-License-Identifier: Apache-2.0
"""``quantization_config`` objects as llm-compressor and AMD Quark write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WRITERS = ["re:.*embed_tokens$", "re:.*o_proj$", "re:.*down_proj$"]
READERS = [f"re:.*{name}_proj$" for name in ("q", "k", "v", "up", "gate")] + ["lm_head"]


def place(targets: list[str], location: str, **changes: Any) -> dict[str, Any]:
    """One entry of ``apply``."""
    return {"ignore": [], "inverse": False, "location": location, "targets": targets, **changes}


def group(*places: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One entry of ``config_groups``."""
    return {
        "apply": list(places),
        "head_dim": None,
        "precision": "torch.float64",
        "randomize": False,
        "requires_grad": False,
        "type": "hadamard",
        **changes,
    }


def r1(**changes: Any) -> dict[str, Any]:
    """SpinQuant's rotation of the residual stream, fused."""
    return group(
        place(WRITERS, "weight_output"),
        place(READERS, "weight_input", inverse=True),
        **changes,
    )


def r2(**changes: Any) -> dict[str, Any]:
    """SpinQuant's rotation between value and output projection, fused."""
    return group(
        place(["re:.*v_proj$"], "weight_output"),
        place(["re:.*o_proj$"], "weight_input", inverse=True),
        **{"head_dim": 64, **changes},
    )


def r4(**changes: Any) -> dict[str, Any]:
    """SpinQuant's rotation in front of ``down_proj``, half of it at run time."""
    targets = ["re:.*down_proj$"]
    return group(place(targets, "input"), place(targets, "weight_input", inverse=True), **changes)


def quip() -> dict[str, Any]:
    """QuIP's transforms of every linear layer."""
    where: dict[str, Any] = {"targets": ["Linear"], "ignore": ["lm_head"]}
    return {
        "u": group(
            place(location="weight_output", **where),
            place(location="output", **{**where, "inverse": True}),
            type="random-hadamard",
        ),
        "v": group(
            place(location="input", **where),
            place(location="weight_input", **{**where, "inverse": True}),
            type="random-hadamard",
        ),
    }


def compressed_tensors(**groups: dict[str, Any]) -> dict[str, Any]:
    """A ``quantization_config`` with these transforms and nothing quantised."""
    return {
        "quant_method": "compressed-tensors",
        "sparsity_config": {},
        "transform_config": {"config_groups": groups},
        "version": "0.19.0",
    }


def quark(**changes: Any) -> dict[str, Any]:
    """A ``quantization_config`` with Quark's rotation algorithm."""
    rotation = {
        "scaling_layers": {},
        "name": "rotation",
        "r1": True,
        "r2": False,
        "r3": False,
        "r4": False,
        "rotation_size": None,
        "random_r1": False,
        "random_r2": False,
        "backbone": "model",
        "model_decoder_layers": "model.layers",
        "v_proj": "self_attn.v_proj",
        "o_proj": "self_attn.o_proj",
        "self_attn": "self_attn",
        "mlp": "mlp",
        "online_r1_rotation": False,
        "online_config": None,
        "trainable": False,
        "train_smooth": None,
        "smooth_positions": None,
        **changes,
    }
    return {"quant_method": "quark", "version": "0.13", "algo_config": [rotation], "exclude": []}


def record(folder: Path, quantization: dict[str, Any]) -> Path:
    """Make a target of another quantiser: no msModelSlim files, ``quantization`` recorded."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "quantization_config": quantization}))
    (folder / "quant_model_description.json").unlink(missing_ok=True)
    (folder / "optional/quarot.safetensors").unlink(missing_ok=True)
    return folder
