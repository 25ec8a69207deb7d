# SPDX-License-Identifier: Apache-2.0
"""Rotating a float Qwen3 checkpoint by compressed-tensors itself, as llm-compressor does.

Norms are folded here; the transforms are made and applied by the library. llm-compressor also
subtracts the mean of every embedding row, which changes the target and is left out, so that the
rotated target computes what the original does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.support import recorded
from tests.support.rotated_copy import readers, write_copy


def spinquant_copy(source: Path, folder: Path, **groups: dict[str, Any]) -> Path:
    """The checkpoint with these transforms applied in fp64, stored in fp32 with their record."""
    from compressed_tensors.transform import TransformConfig, apply_transform_config
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float64)
    with torch.no_grad():
        for layer in model.model.layers:
            for norm, names in readers(model.config.to_dict()).items():
                _fold(layer.get_submodule(norm), [layer.get_submodule(name) for name in names])
        _fold(model.model.norm, [model.lm_head])
    apply_transform_config(model, TransformConfig.model_validate({"config_groups": groups}))
    write_copy(source, folder, model.state_dict())
    return recorded.record(folder, recorded.compressed_tensors(**groups))


def _fold(norm: torch.nn.Module, linears: list[torch.nn.Module]) -> None:
    for reader in linears:
        reader.weight *= norm.weight
    norm.weight.fill_(1.0)
