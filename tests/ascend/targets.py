# SPDX-License-Identifier: Apache-2.0
"""Targets as vllm-ascend's quantisation reads them: every tensor has an entry in the description.

The W8A8 ones are the committed checkpoints that msModelSlim wrote. The float ones go through the
same code of vllm-ascend with ``FLOAT`` for every tensor.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.support import reference_pair as pair
from tests.support.checkpoints import write_json
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import real_rotation

DESCRIPTION = "quant_model_description.json"

#: Width of :func:`wide_target`, a size that our NPU kernel takes (the pair's 192 goes to matmuls).
WIDE = 256

#: As msModelSlim wrote them: quantised without and with rotation.
W8A8 = pair.PAIR / "target-w8a8"
W8A8_QUAROT = pair.PAIR / "target-w8a8-quarot"


def float_target(folder: Path) -> Path:
    """The unrotated target, fp32."""
    return described(copy_in_fp32(pair.FLOAT_TARGET, folder))


def wide_target(folder: Path) -> Path:
    """A Qwen3 of :data:`WIDE` channels with random weights and the pair's tokenizer, unrotated."""
    shutil.copytree(pair.FLOAT_TARGET, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text())
    config.pop("dtype")
    write_json(folder / "config.json", {**config, "hidden_size": WIDE, "torch_dtype": "float32"})
    generator = torch.Generator().manual_seed(31)
    tensors = {}
    for name, stored in load_file(pair.FLOAT_TARGET / "model.safetensors").items():
        shape = [WIDE if size == config["hidden_size"] else size for size in stored.shape]
        drawn = torch.randn(shape, generator=generator)
        # Norms of 0.5 to 1.5, matrices that keep the size of what they multiply.
        tensors[name] = drawn.sigmoid() + 0.5 if len(shape) == 1 else drawn * shape[-1] ** -0.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return described(folder)


def rotated_wide_target(source: Path, folder: Path) -> Path:
    """:func:`wide_target`'s checkpoint, rotated."""
    return rotated_copy(source, folder, real_rotation(WIDE))


def rotated_float_target(folder: Path) -> Path:
    """The target rotated by msModelSlim's matrix for its hidden size, fp32, with its sidecar."""
    return rotated_copy(pair.FLOAT_TARGET, folder, real_rotation(192))


def without_pointer(source: Path, folder: Path) -> Path:
    """A rotated target whose description does not say so.

    vllm-ascend's own fold has no switch: it runs whenever the description names a rotation file.
    """
    shutil.copytree(source, folder)
    path = folder / DESCRIPTION
    description = json.loads(path.read_text())
    del description["optional"]
    write_json(path, description)
    return folder


def described(folder: Path) -> Path:
    """Add the description of a float checkpoint."""
    types = {name: "FLOAT" for name in load_file(folder / "model.safetensors")}
    write_json(folder / DESCRIPTION, {"model_quant_type": "FLOAT", **types})
    return folder
