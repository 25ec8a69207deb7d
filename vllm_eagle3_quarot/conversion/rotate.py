# SPDX-License-Identifier: Apache-2.0
"""Rotating a float checkpoint, tensor by tensor, into a new folder.

Arithmetic and its order are msModelSlim's, so that results are equal bit for bit: fp32 products of
whole matrices, rounded to the stored dtype after the norm's scale and after each rotation. One
tensor is in memory at a time, besides ``Q``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.description import DESCRIPTION_FILE
from vllm_eagle3_quarot.checkpoint.folder import confined
from vllm_eagle3_quarot.checkpoint.new_folder import copy_file, new_folder, write_text
from vllm_eagle3_quarot.checkpoint.safetensors_file import (
    FLOAT_NAMES,
    NewTensor,
    tensor_bytes,
    write_file,
)
from vllm_eagle3_quarot.checkpoint.sidecar import SIDECAR_FILE
from vllm_eagle3_quarot.checkpoint.sidecar_output import write_rotation
from vllm_eagle3_quarot.checkpoint.tensors import INDEX_PATTERN, TensorIndex
from vllm_eagle3_quarot.conversion.families import Rule, Shape, read_shape, rules_of
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.rotation.msmodelslim import SEEDS, msmodelslim_rotation
from vllm_eagle3_quarot.rotation.rotation import Rotation

WEIGHTS_STEM = "quant_model_weights"
PART_BYTES = 4 * 2**30

#: Block and shift of the rotation of values in mixtures.
SHIFTED_BLOCK = 32
SHIFT = 16

#: Files that go along, by the end of their name.
COPIED = (".json", ".txt", ".jinja", ".py", ".model")

#: Called with the number of bytes of weights written since the last call.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class RotationPlan:
    """A model and what will be done to it.

    Attributes:
        rotation: ``Q``.
        values: ``U`` fp32 ``[head_dim, head_dim]``.
        rules: for each tensor of the model.
    """

    tensors: TensorIndex
    shape: Shape
    rotation: Rotation
    values: torch.Tensor
    rules: Mapping[str, Rule]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(_bytes(self, name) for name in self.rules)


def plan_rotation(model: Path, block: int | None = None, seed: int = SEEDS[0]) -> RotationPlan:
    """Look at the float model in ``model`` and choose its rotation.

    Raises:
        CheckpointError: a file is broken.
        RotationError: there is no rotation of that size.
        UnsupportedPairError: a model, or a tensor of it, without a rule.
    """
    shape = read_shape(model)
    tensors = TensorIndex.from_folder(model)
    rules = rules_of(shape)
    unknown = sorted(set(tensors.files) - set(rules))
    needed = [name for name in rules if not name.endswith(".bias")]
    missing = [name for name in needed if name not in tensors.files and "_norm." not in name]
    if unknown or missing:
        what, names = ("unknown", unknown) if unknown else ("missing", missing)
        raise UnsupportedPairError(
            f"{model}: {len(names)} tensors are {what} ({', '.join(names[:4])} ...); rotating the "
            "others only would break the model"
        )
    for name in tensors.files:
        _check_shape(tensors, name, rules[name], shape)
    return RotationPlan(
        tensors=tensors,
        shape=shape,
        rotation=msmodelslim_rotation(shape.hidden, block, seed),
        values=_value_rotation(shape, block, seed),
        rules={name: rules[name] for name in sorted(tensors.files)},
    )


def rotate_model(
    plan: RotationPlan,
    output: Path,
    *,
    overwrite: bool = False,
    progress: Progress = lambda written: None,
) -> None:
    """Write the rotated model to ``output``.

    Raises:
        CheckpointError: a file is broken, or ``output`` cannot be written; nothing is left behind.
    """
    model = plan.tensors.folder
    if output.resolve().is_relative_to(model.resolve()):
        raise CheckpointError(f"{output} is inside the model's own folder; choose another one")
    with new_folder(output, overwrite=overwrite) as folder:
        _copy_small_files(model, folder)
        parts = _parts(plan)
        weights: dict[str, str] = {}
        for number, names in enumerate(parts, start=1):
            file = f"{WEIGHTS_STEM}-{number:05}-of-{len(parts):05}.safetensors"
            write_file(folder / file, [_new_tensor(plan, name, progress) for name in names], {})
            weights |= dict.fromkeys(names, file)
        index = {"metadata": {"total_size": plan.weight_bytes}, "weight_map": weights}
        write_text(folder / f"{WEIGHTS_STEM}.safetensors.index.json", json.dumps(index, indent=2))
        write_text(folder / DESCRIPTION_FILE, json.dumps(_description(plan), indent=2))
        rotation = plan.rotation
        write_rotation(folder / SIDECAR_FILE, rotation.size, rotation.row_groups(), {})


def _new_tensor(plan: RotationPlan, name: str, progress: Progress) -> NewTensor:
    def pieces() -> Iterator[memoryview]:
        data = tensor_bytes(rotated(plan, name, q))
        yield data
        progress(data.nbytes)

    q = plan.rotation
    dtype = plan.tensors.read_range(name, 0, 1).dtype
    return NewTensor(name, FLOAT_NAMES[dtype], plan.tensors.shape(name), pieces())


def rotated(plan: RotationPlan, name: str, rotation: Rotation) -> torch.Tensor:
    """The new value of one tensor, in its stored dtype."""
    rule = plan.rules[name]
    tensor = plan.tensors.read(name)
    dtype = tensor.dtype
    if rule.becomes_ones:
        return torch.ones_like(tensor)
    if rule.norm is not None:
        tensor = (tensor.float() * plan.tensors.read(rule.norm).float()).to(dtype)
    if rule.stream_left:
        tensor = (rotation.dense().T @ tensor.float()).to(dtype)
    if rule.stream_right:
        tensor = (tensor.float() @ rotation.dense()).to(dtype)
    if rule.values_left or rule.values_right:
        count = tensor.shape[0 if rule.values_left else 1] // plan.shape.head_dim
        values = torch.block_diag(*[plan.values] * count)
        wide = tensor.float()
        tensor = (values.T @ wide if rule.values_left else wide @ values).to(dtype)
    return tensor


def _value_rotation(shape: Shape, block: int | None, seed: int) -> torch.Tensor:
    size = shape.head_dim
    if not shape.shifted_values:
        return msmodelslim_rotation(size, block, seed).dense()
    one = msmodelslim_rotation(size, block or SHIFTED_BLOCK, seed).dense()
    return one @ torch.roll(torch.eye(size), SHIFT, dims=1) @ one


def _check_shape(tensors: TensorIndex, name: str, rule: Rule, shape: Shape) -> None:
    found = tensors.shape(name)
    wrong = 0 in found or not found
    if rule.stream_right or rule.becomes_ones:
        wrong = wrong or found[-1] != shape.hidden
    if rule.stream_left:
        wrong = wrong or found[0] != shape.hidden
    if rule.values_left:
        wrong = wrong or found[0] % shape.head_dim != 0
    if rule.values_right:
        wrong = wrong or found[-1] % shape.head_dim != 0
    if wrong:
        raise CheckpointError(
            f"{tensors.folder}: '{name}' has shape {found}, which does not fit hidden_size "
            f"{shape.hidden} and head_dim {shape.head_dim}"
        )
    if tensors.read_range(name, 0, 1).dtype not in FLOAT_NAMES:
        raise UnsupportedPairError(f"{tensors.folder}: '{name}' is quantised; give a float model")


def _parts(plan: RotationPlan) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    size = 0
    for name in plan.rules:
        added = _bytes(plan, name)
        if parts[-1] and size + added > PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(name)
        size += added
    return parts


def _bytes(plan: RotationPlan, name: str) -> int:
    dtype = plan.tensors.read_range(name, 0, 1).dtype
    return math.prod(plan.tensors.shape(name)) * dtype.itemsize


def _description(plan: RotationPlan) -> dict[str, object]:
    pointer = {"quarot": {"rotation_map": {"global_rotation": SIDECAR_FILE}}}
    types: dict[str, object] = dict.fromkeys(plan.rules, "FLOAT")
    tail = {"version": "1.0.0", "model_quant_type": "FLOAT", "metadata": {}, "group_size": 0}
    return {**types, **tail, "optional": pointer}


def _copy_small_files(model: Path, folder: Path) -> None:
    for path in sorted(model.iterdir()):
        index = path.match(INDEX_PATTERN) or path.name == DESCRIPTION_FILE
        if index or not path.is_file() or path.suffix not in COPIED:
            continue
        if confined(model, path.name) is None:
            raise CheckpointError(f"{path} links out of the model's folder; it was not copied")
        copy_file(path, folder / path.name)
