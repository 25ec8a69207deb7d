# SPDX-License-Identifier: Apache-2.0
"""The committed mixture-of-experts checkpoints, and drafts for them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.support.drafts import DraftSpec
from tools.moe_target.float_model import SETTINGS, add_tokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "moe_target"
ROTATED = "w8a8-quarot"
UNROTATED = "w8a8"

_SHAPE: dict[str, Any] = {
    "hidden": SETTINGS.hidden_size,
    "vocabulary": SETTINGS.vocabulary,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 32,
    "extra": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
}

#: A draft that needs everything un-rotated: aux states, token rows, and its final states for the
#: target's head.
SHARING = DraftSpec(**_SHAPE, own_embedding=False, own_head=False)

#: The same draft with tables of its own.
INDEPENDENT = DraftSpec(**_SHAPE)


def servable(name: str, folder: Path) -> Path:
    """Copy a committed checkpoint and add its tokenizer."""
    shutil.copytree(FIXTURES / name, folder)
    add_tokenizer(folder)
    return folder


def rotation() -> torch.Tensor:
    """Q of the rotated checkpoint, fp64."""
    sidecar = load_file(FIXTURES / ROTATED / "optional" / "quarot.safetensors")
    return sidecar["global_rotation"].double()


def aligned_draft(folder: Path, final_norm: torch.Tensor) -> Path:
    """``SHARING`` made for the rotated checkpoint in fp64: what it gets un-rotated is in its files.

    It reads rotated aux states through ``fc blockdiag(Q, ...)`` and has un-rotated copies of the
    target's tables, so it needs no correction.

    Args:
        folder: to write it into.
        final_norm: scale of the float model's final norm ``[H]``, which the rotated head contains.
    """
    q = rotation()
    (weights,) = (FIXTURES / ROTATED).glob("*.safetensors")
    target = load_file(weights)
    table = target["model.embed_tokens.weight"].double() @ q.T
    head = (target["lm_head.weight"].double() @ q.T) / final_norm.double()
    INDEPENDENT.write(folder)
    tensors = load_file(folder / "model.safetensors")
    fc = tensors["fc.weight"].double().unflatten(1, (-1, len(q))) @ q
    tensors |= {
        "fc.weight": fc.flatten(1).float(),
        "embed_tokens.weight": table.float(),
        "lm_head.weight": head.float(),
    }
    stored = {name: value.contiguous() for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
