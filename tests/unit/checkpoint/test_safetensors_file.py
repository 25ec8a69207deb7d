# SPDX-License-Identifier: Apache-2.0
"""Our reader and writer of safetensors files against the library's, and hostile headers."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vllm_eagle3_quarot.checkpoint.safetensors_file import (
    NewTensor,
    read_header,
    stored_pieces,
    tensor_bytes,
    write_file,
)
from vllm_eagle3_quarot.errors import CheckpointError

TENSORS = {
    "b": torch.randn(3, 5).to(torch.bfloat16),
    "a": torch.arange(7),
    "empty": torch.zeros(0, 4),
    "scalar": torch.tensor(2.5),
    "flags": torch.tensor([True, False, True]),
    "narrow": torch.randn(4, 2).to(torch.float8_e4m3fn),
}


def test_header_says_what_the_library_says(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "f", metadata={"format": "pt"})
    header = read_header(tmp_path / "f")
    assert header.metadata == {"format": "pt"}
    with safe_open(tmp_path / "f", "pt") as stored:
        for entry in header.entries:
            part = stored.get_slice(entry.name)
            assert (entry.shape, entry.dtype) == (tuple(part.get_shape()), part.get_dtype())
            data = b"".join(stored_pieces(tmp_path / "f", entry))
            assert data == bytes(tensor_bytes(TENSORS[entry.name]))


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "f")
    header = read_header(tmp_path / "f")
    new = [
        NewTensor(e.name, e.dtype, e.shape, stored_pieces(tmp_path / "f", e))
        for e in header.entries
    ]
    write_file(tmp_path / "g", new, {"note": "ü"})
    again = load_file(tmp_path / "g")
    assert again.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert bytes(tensor_bytes(again[name])) == bytes(tensor_bytes(value))
    assert read_header(tmp_path / "g").metadata == {"note": "ü"}


def _raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _tensor(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


HOSTILE = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "huge length": (2**63).to_bytes(8, "little") + b"{}",
    "length beyond the file": (100).to_bytes(8, "little") + b"{}",
    "no JSON": _raw(b"{nonsense"),
    "not UTF-8": _raw(b'{"\xff": 1}'),
    "deep nesting": _raw(b"[" * 100_000),
    "a list": _raw([]),
    "entry is a number": _raw({"a": 1}),
    "unknown dtype": _raw({"a": _tensor(dtype="F31")}, bytes(8)),
    "dtype is a list": _raw({"a": _tensor(dtype=["F32"])}, bytes(8)),
    "negative shape": _raw({"a": _tensor(shape=[-2])}, bytes(8)),
    "shape of booleans": _raw({"a": _tensor(shape=[True, 2])}, bytes(8)),
    "shape overflows": _raw({"a": _tensor(shape=[2**40, 2**40])}, bytes(8)),
    "offsets reversed": _raw({"a": _tensor(data_offsets=[8, 0])}, bytes(8)),
    "offsets missing": _raw({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "overlap": _raw({"a": _tensor(), "b": _tensor()}, bytes(8)),
    "hole": _raw({"a": _tensor(data_offsets=[4, 12])}, bytes(12)),
    "truncated": _raw({"a": _tensor()}, bytes(4)),
    "trailing bytes": _raw({"a": _tensor()}, bytes(9)),
    "metadata of numbers": _raw({"__metadata__": {"a": 1}, "a": _tensor()}, bytes(8)),
    "name twice": _raw(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        bytes(8),
    ),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(CheckpointError, match="download it again"):
        read_header(tmp_path / "f")


def test_unreadable_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_header(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_header(tmp_path / "nothing")


def test_changed_bytes_never_end_in_another_exception(tmp_path: Path) -> None:
    """10 000 damaged files. What we accept, the library accepts too, and sees the same in it."""
    original = _raw({"a": _tensor(), "b": _tensor(data_offsets=[8, 16])}, bytes(16))
    rng = random.Random(1)
    path = tmp_path / "f"
    accepted = 0
    for _ in range(10_000):
        content = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.choice(b'0123456789-.,:[]{}"aF\x00\xff')
        del content[len(content) - rng.choice((0, 0, 0, 1)) :]
        path.unlink(missing_ok=True)  # some file systems flush a file that is written over
        path.write_bytes(content)
        try:
            header = read_header(path)
        except CheckpointError:
            continue
        accepted += 1
        with safe_open(path, "pt") as stored:
            assert set(stored.keys()) == {entry.name for entry in header.entries}
    assert accepted > 100
