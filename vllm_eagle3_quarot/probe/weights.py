# SPDX-License-Identifier: Apache-2.0
"""The weights of a checkpoint as floats, whatever 8-bit format they are stored in.

Formulas, each read off checkpoints that the tool wrote, ``q`` the stored weight ``[out, in]``:

* msModelSlim ``W8A8``: ``q · deq_scale / input_scale``; ``deq_scale`` is fp32, or the bits of an
  fp32 number in an int64 when the model is not bf16;
* msModelSlim ``W8A8_DYNAMIC``, compressed-tensors and Quark: ``(q - offset) · weight_scale``, one
  scale per output channel or one for all;
* fp8 in tiles: ``q · weight_scale_inv``, one scale per tile.

Activations stay float: a probe asks whether states are in the right basis, for which the error of
their quantisation (1e-2) does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.pickled import PickledTensors
from vllm_eagle3_quarot.checkpoint.safetensors_file import read_header
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.errors import ProbeError

WEIGHT = ".weight"
NARROW = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)

DEQUANTISING_SCALE = "deq_scale"
INPUT_SCALE = "input_scale"
SCALE = "weight_scale"
OFFSETS = ("weight_offset", "weight_zero_point")
TILE_SCALE = "weight_scale_inv"

#: What stands beside a quantised weight and is no parameter of the float model.
PARTS = frozenset(
    {
        "quant_bias",
        DEQUANTISING_SCALE,
        INPUT_SCALE,
        "input_offset",
        "input_zero_point",
        "output_scale",
        SCALE,
        *OFFSETS,
        TILE_SCALE,
    }
)

#: Marks of formats that pack several weights into one number, or rotate again while running.
NOT_UNDERSTOOD = {
    "weight_packed": "packed weights",
    "qweight": "packed weights",
    "heads_rotation": "a rotation of heads while running",
    "kronecker_rotation_m": "a Kronecker rotation while running",
    "input_rotation": "a rotation of inputs while running",
}

#: Types of msModelSlim that store one byte per weight.
UNDERSTOOD_TYPES = frozenset({"FLOAT", "W8A8", "W8A8_DYNAMIC", "W8A8_MIX"})

Tensors = TensorIndex | PickledTensors


def parameter_count(index: TensorIndex) -> int:
    """Numbers in all tensors of a checkpoint, from its headers.

    Raises:
        CheckpointError: a header is broken.
    """
    headers = (read_header(path) for path in sorted(set(index.files.values())))
    return sum(math.prod(entry.shape) for header in headers for entry in header.entries)


def target_weights(target: TargetFacts) -> dict[str, torch.Tensor]:
    """Every parameter of ``target`` in fp32, by its stored name.

    Raises:
        ProbeError: a format that is not understood, or rotations that need to be run.
        CheckpointError: a file is broken.
    """
    description = target.description
    for name, kind in (description.tensor_types if description is not None else {}).items():
        if kind not in UNDERSTOOD_TYPES and name in target.tensors.files:
            raise ProbeError(f"{target.folder}: '{name}' is stored as {kind}")
    recorded = target.recorded_rotations
    if recorded is not None and recorded.residual is None:
        raise ProbeError(
            f"{target.folder}: the rotations by {recorded.tool} are undone inside layers by the "
            "engine while it runs"
        )
    return _floats(target.tensors, f"{target.folder}")


def draft_weights(draft: DraftFacts) -> dict[str, torch.Tensor]:
    """Every parameter of ``draft`` in fp32 and its vocabulary maps, by their stored names.

    Raises:
        ProbeError: a format that is not understood.
        CheckpointError: a file is broken.
    """
    return _floats(draft.tensors, f"{draft.folder}")


def _floats(index: Tensors, where: str) -> dict[str, torch.Tensor]:
    result: dict[str, torch.Tensor] = {}
    for name in index.files:
        part = name.rpartition(".")[2]
        if part in NOT_UNDERSTOOD:
            raise ProbeError(f"{where}: '{name}' stands for {NOT_UNDERSTOOD[part]}")
        if part in PARTS:
            continue
        value = index.read(name)
        if value.dtype in NARROW and name.endswith(WEIGHT):
            value = _dequantised(index, name, value, where)
        result[name] = value.float() if value.is_floating_point() else value
    return result


def _dequantised(index: Tensors, name: str, stored: torch.Tensor, where: str) -> torch.Tensor:
    weight = stored.float()
    module = name.removesuffix("weight")
    parts: Mapping[str, torch.Tensor] = {
        part: index.read(module + part) for part in PARTS if module + part in index.files
    }
    if SCALE in parts:
        offset = next((parts[part] for part in OFFSETS if part in parts), None)
        if offset is not None:
            weight = weight - _per_channel(offset, weight, name, where)
        return weight * _per_channel(parts[SCALE], weight, name, where)
    if DEQUANTISING_SCALE in parts and INPUT_SCALE in parts:
        scale = parts[DEQUANTISING_SCALE]
        if scale.dtype == torch.int64:
            scale = scale.to(torch.int32).view(torch.float32)
        step = parts[INPUT_SCALE].float().reshape(-1)[:1]
        return weight * (_per_channel(scale, weight, name, where) / step)
    if TILE_SCALE in parts and weight.dim() == 2:
        return weight * _per_tile(parts[TILE_SCALE].float(), weight, name, where)
    raise ProbeError(f"{where}: '{name}' is {stored.dtype} without a scale that is known here")


def _per_channel(scale: torch.Tensor, weight: torch.Tensor, name: str, where: str) -> torch.Tensor:
    if scale.numel() == 1:
        return scale.float().reshape(())
    if scale.numel() != weight.shape[0]:
        raise ProbeError(
            f"{where}: the scale of '{name}' has shape {tuple(scale.shape)}; one number per output "
            "channel or one for all is understood"
        )
    return scale.float().reshape(-1, *[1] * (weight.dim() - 1))


def _per_tile(scale: torch.Tensor, weight: torch.Tensor, name: str, where: str) -> torch.Tensor:
    if scale.dim() != 2 or 0 in scale.shape:
        raise ProbeError(f"{where}: the scales of '{name}' have shape {tuple(scale.shape)}")
    # Tiles are powers of two; the last one of a row or a column may be cut off.
    tiles = [
        2 ** math.ceil(math.log2(math.ceil(size / count)))
        for size, count in zip(weight.shape, scale.shape, strict=True)
    ]
    spread = scale.repeat_interleave(tiles[0], 0).repeat_interleave(tiles[1], 1)
    return spread[: weight.shape[0], : weight.shape[1]]
