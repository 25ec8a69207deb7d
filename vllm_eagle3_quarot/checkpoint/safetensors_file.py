# SPDX-License-Identifier: Apache-2.0
"""The safetensors format by hand, so that a shard can be rewritten without being held in memory.

Format (safetensors 0.4 and later, from its published description): eight bytes with the length
``n`` of the header, little-endian; ``n`` bytes of JSON, padded with spaces; then the data. The
header maps a tensor's name to ``{"dtype", "shape", "data_offsets": [begin, end]}``, offsets counted
from the end of the header; the key ``__metadata__`` maps strings to strings. Data has no holes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeGuard

import torch

from vllm_eagle3_quarot.errors import CheckpointError

#: The limit of the safetensors library itself.
MAX_HEADER_BYTES = 100_000_000

#: Bytes copied at once.
COPY_BYTES = 16 * 2**20

METADATA_KEY = "__metadata__"

#: Bits per element of every dtype that the format names.
DTYPE_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

FLOAT_NAMES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: ``start`` and ``stop`` are offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Header:
    """What a file holds, in the order of its data."""

    path: Path
    entries: tuple[Entry, ...]
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written: its bytes come in pieces, and only when they are asked for."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[memoryview]

    @property
    def size(self) -> int:
        """Bytes of data."""
        return math.prod(self.shape) * DTYPE_BITS[self.dtype] // 8


def read_header(path: Path) -> Header:
    """Read and check the header of the file at ``path``; no data is read.

    Raises:
        CheckpointError: not readable, or not exactly what the format says.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
                raise _broken(path, f"its header claims {length} bytes of a file of {size}")
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"its header is no valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise _broken(path, "its header is no JSON object")
    metadata = document.pop(METADATA_KEY, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _broken(path, f"'{METADATA_KEY}' is no map of strings")
    begin = 8 + length
    entries = sorted(
        (_entry(path, name, value, begin) for name, value in document.items()),
        key=lambda entry: (entry.start, entry.stop),
    )
    position = begin
    for entry in entries:
        if entry.start != position:
            raise _broken(path, f"the data of '{entry.name}' overlaps another or leaves a hole")
        position = entry.stop
    if position != size:
        raise _broken(path, f"it has {size} bytes, its header accounts for {position}")
    return Header(path, tuple(entries), metadata)


def stored_pieces(path: Path, entry: Entry) -> Iterator[memoryview]:
    """The bytes of one stored tensor, in pieces of at most :data:`COPY_BYTES`."""
    with path.open("rb") as file:
        file.seek(entry.start)
        left = entry.stop - entry.start
        while left:
            piece = file.read(min(left, COPY_BYTES))
            if not piece:
                raise CheckpointError(f"{path} became shorter while it was read")
            left -= len(piece)
            yield memoryview(piece)


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of ``tensor`` in row order."""
    flat = tensor.detach().contiguous().flatten().view(torch.uint8)
    return memoryview(flat.numpy())  # type: ignore[arg-type]  # an array has the buffer protocol


def write_file(path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> None:
    """Write a new file piece by piece and flush it to the disk.

    Raises:
        OSError: the disk is full, or the place cannot be written.
    """
    header: dict[str, object] = {METADATA_KEY: dict(metadata)} if metadata else {}
    position = 0
    for tensor in tensors:
        end = position + tensor.size
        offsets = [position, end]
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors:
            _write_tensor(file, tensor)
        file.flush()
        os.fsync(file.fileno())


def _write_tensor(file: BinaryIO, tensor: NewTensor) -> None:
    written = 0
    for piece in tensor.pieces:
        file.write(piece)
        written += piece.nbytes
    if written != tensor.size:
        raise AssertionError(f"{tensor.name}: {written} bytes written, {tensor.size} announced")


def _entry(path: Path, name: str, value: object, begin: int) -> Entry:
    if not isinstance(value, dict):
        raise _broken(path, f"the entry of '{name}' is no object")
    dtype, shape, offsets = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _broken(path, f"the dtype of '{name}' is {dtype!r}")
    if not _naturals(shape):
        raise _broken(path, f"the shape of '{name}' is {shape!r}")
    if not _naturals(offsets) or len(offsets) != 2:
        raise _broken(path, f"the offsets of '{name}' are {offsets!r}")
    start, stop = offsets
    if (stop - start) * 8 != math.prod(shape) * DTYPE_BITS[dtype]:
        raise _broken(path, f"the offsets of '{name}' do not fit its shape and dtype")
    return Entry(name, dtype, tuple(shape), begin + start, begin + stop)


def _naturals(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _broken(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} is not a usable safetensors file: {reason}; download it again")
