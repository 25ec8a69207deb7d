# SPDX-License-Identifier: Apache-2.0
"""A copy of a draft in which some tensors differ, written with little memory.

Files of weights that nothing changes in, and every other file, are copied byte for byte. A file of
weights with a change is written again in its order: stored bytes are passed through in pieces, and
changed tensors are computed a few rows at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.folder import confined
from vllm_eagle3_quarot.checkpoint.json_file import read_json_object
from vllm_eagle3_quarot.checkpoint.new_folder import copy_file, write_text
from vllm_eagle3_quarot.checkpoint.pickled import PATTERN, PickledTensors
from vllm_eagle3_quarot.checkpoint.safetensors_file import (
    DTYPE_BITS,
    FLOAT_NAMES,
    NewTensor,
    read_header,
    stored_pieces,
    tensor_bytes,
    write_file,
)
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE
from vllm_eagle3_quarot.checkpoint.tensors import INDEX_PATTERN, TensorIndex
from vllm_eagle3_quarot.errors import CheckpointError

#: Bytes of fp64 that one step of a computation may have.
BYTES_AT_ONCE = 64 * 2**20

#: Folders that are no part of a checkpoint.
SKIPPED_FOLDERS = frozenset({".git", ".cache"})

#: Called with the number of bytes of weights written since the last call.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class ChangedTensor:
    """A tensor with new contents: ``rows(start, stop)`` computes a part of it, in any float dtype.

    A tensor that is not two-dimensional is computed at once, by ``rows(0, shape[0])``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: Callable[[int, int], torch.Tensor]


@dataclass(frozen=True)
class Changes:
    """What differs between a draft and its rewritten copy.

    Attributes:
        tensors: changed and added tensors; an added one goes into the file of ``anchor``.
        dropped: names of tensors that are left out.
        anchor: stored name of the projection.
        config: the whole new configuration.
        metadata: goes into the safetensors metadata of the file of ``anchor``; an empty value
            takes a key away.
        files: further files, relative path to a writer that is given the absolute one; None
            leaves a file out.
    """

    tensors: tuple[ChangedTensor, ...]
    dropped: tuple[str, ...]
    anchor: str
    config: Mapping[str, object]
    metadata: Mapping[str, str]
    files: Mapping[str, Callable[[Path], None] | None]


def rewrite(draft: DraftFacts, folder: Path, changes: Changes, progress: Progress) -> None:
    """Write the changed copy of ``draft`` into the empty ``folder``.

    Raises:
        CheckpointError: a file of the draft is broken, or a new value is not finite.
        OSError: it cannot be written.
    """
    pickled = isinstance(draft.tensors, PickledTensors)
    for source in _files(draft.folder):
        relative = source.relative_to(draft.folder)
        if str(relative) in (CONFIG_FILE, *changes.files):
            continue
        top = len(relative.parts) == 1
        if top and source.suffix == ".safetensors":
            _write_shard(draft, source, folder / relative, changes, progress)
        elif top and relative.match(INDEX_PATTERN):
            _write_index(draft, source, folder / relative, changes)
        elif not (top and pickled and relative.match(PATTERN)):
            copy_file(source, folder / relative)
    if pickled:
        _write_unpickled(draft, folder / "model.safetensors", changes, progress)
    write_text(folder / CONFIG_FILE, json.dumps(changes.config, indent=2) + "\n")
    for name, write in changes.files.items():
        if write is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write(folder / name)


def weight_bytes(draft: DraftFacts) -> int:
    """Bytes of all files of weights, for a progress bar."""
    index = draft.tensors
    if isinstance(index, TensorIndex):
        return sum(path.stat().st_size for path in set(index.files.values()))
    return sum(value.nbytes for value in index.values.values())


def _files(folder: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(directory, name)
            if confined(folder, str(path.relative_to(folder))) is None:
                raise CheckpointError(
                    f"{path} links out of the checkpoint folder; it was not copied. Remove it"
                )
            if not path.is_file():
                raise CheckpointError(f"{path} is no plain file, or a link to nothing. Remove it")
            yield path


def _write_shard(
    draft: DraftFacts, source: Path, destination: Path, changes: Changes, progress: Progress
) -> None:
    header = read_header(source)
    here = [entry.name for entry in header.entries]
    changed = {tensor.name: tensor for tensor in changes.tensors}
    if not {*changed, *changes.dropped, changes.anchor}.intersection(here):
        copy_file(source, destination)
        progress(source.stat().st_size)
        return
    tensors: list[NewTensor] = []
    for entry in header.entries:
        if entry.name in changed:
            tensors.append(_computed(changed[entry.name], progress))
        elif entry.name not in changes.dropped:
            pieces = _counted(stored_pieces(source, entry), progress)
            tensors.append(NewTensor(entry.name, entry.dtype, entry.shape, pieces))
    metadata = dict(header.metadata)
    if changes.anchor in here:
        tensors += [_computed(tensor, progress) for tensor in _added(draft, changes)]
        metadata = _merged(metadata, changes.metadata)
    write_file(destination, tensors, metadata)


def _write_unpickled(
    draft: DraftFacts, destination: Path, changes: Changes, progress: Progress
) -> None:
    assert isinstance(draft.tensors, PickledTensors)
    changed = {tensor.name: tensor for tensor in changes.tensors}
    dtypes = {torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8"}
    known = {**FLOAT_NAMES, **dtypes, torch.bool: "BOOL"}
    tensors: list[NewTensor] = []
    for name, value in draft.tensors.values.items():
        if name in changed:
            tensors.append(_computed(changed[name], progress))
        elif name not in changes.dropped:
            if value.dtype not in known:
                raise CheckpointError(
                    f"{draft.folder}: '{name}' is {value.dtype}, which is not expected in a draft"
                )
            pieces = _counted(iter([tensor_bytes(value)]), progress)
            tensors.append(NewTensor(name, known[value.dtype], tuple(value.shape), pieces))
    tensors += [_computed(tensor, progress) for tensor in _added(draft, changes)]
    write_file(destination, tensors, _merged({"format": "pt"}, changes.metadata))


def _write_index(draft: DraftFacts, source: Path, destination: Path, changes: Changes) -> None:
    """The index with added tensors, without dropped ones, and with the new total."""
    document = dict(read_json_object(source))
    weights = document.get("weight_map")
    if not isinstance(weights, dict) or changes.anchor not in weights:
        copy_file(source, destination)
        return
    weights = {name: file for name, file in weights.items() if name not in changes.dropped}
    for tensor in _added(draft, changes):
        weights[tensor.name] = weights[changes.anchor]
    document["weight_map"] = weights
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and type(metadata.get("total_size")) is int:
        total = metadata["total_size"] + _growth(draft, changes)
        document["metadata"] = {**metadata, "total_size": total}
    write_text(destination, json.dumps(document, indent=2) + "\n")


def _growth(draft: DraftFacts, changes: Changes) -> int:
    assert isinstance(draft.tensors, TensorIndex)
    stored: dict[str, int] = {}
    for path in set(draft.tensors.files.values()):
        stored |= {entry.name: entry.stop - entry.start for entry in read_header(path).entries}
    new = sum(_size(tensor) - stored.get(tensor.name, 0) for tensor in changes.tensors)
    return new - sum(stored.get(name, 0) for name in changes.dropped)


def _size(tensor: ChangedTensor) -> int:
    return NewTensor(tensor.name, FLOAT_NAMES[tensor.dtype], tensor.shape, ()).size


def _added(draft: DraftFacts, changes: Changes) -> Sequence[ChangedTensor]:
    return [tensor for tensor in changes.tensors if tensor.name not in draft.tensors.files]


def _computed(tensor: ChangedTensor, progress: Progress) -> NewTensor:
    name = FLOAT_NAMES[tensor.dtype]
    assert DTYPE_BITS[name] % 8 == 0
    return NewTensor(tensor.name, name, tensor.shape, _counted(_pieces(tensor), progress))


def _pieces(tensor: ChangedTensor) -> Iterator[memoryview]:
    count = tensor.shape[0]
    step = count
    if len(tensor.shape) == 2:
        step = max(1, BYTES_AT_ONCE // (8 * max(1, tensor.shape[1])))
    for start in range(0, count, step):
        rows = tensor.rows(start, min(start + step, count)).to(tensor.dtype)
        if not bool(torch.isfinite(rows).all()):
            raise CheckpointError(
                f"'{tensor.name}' would have NaN or infinite values in rows {start} to "
                f"{min(start + step, count)}: they are in the checkpoints that were read, or do "
                f"not fit {str(tensor.dtype).removeprefix('torch.')}"
            )
        yield tensor_bytes(rows)


def _counted(pieces: Iterator[memoryview], progress: Progress) -> Iterator[memoryview]:
    for piece in pieces:
        yield piece
        progress(piece.nbytes)


def _merged(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in {**old, **new}.items() if value}
