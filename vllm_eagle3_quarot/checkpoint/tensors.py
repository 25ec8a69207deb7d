# SPDX-License-Identifier: Apache-2.0
"""A lazy index of a checkpoint's tensors: names from headers, data only when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from vllm_eagle3_quarot.checkpoint.folder import confined
from vllm_eagle3_quarot.checkpoint.json_file import as_object, read_json_object
from vllm_eagle3_quarot.errors import CheckpointError

INDEX_PATTERN = "*.safetensors.index.json"


@dataclass(frozen=True)
class TensorIndex:
    """Which top-level ``*.safetensors`` file of a checkpoint holds which tensor.

    Attributes:
        folder: the checkpoint.
        files: tensor name to file.
    """

    folder: Path
    files: Mapping[str, Path]

    @classmethod
    def from_folder(cls, folder: Path) -> TensorIndex:
        """Read the index file, or the header of every shard when there is none.

        A folder without safetensors files gives an empty index.

        Raises:
            CheckpointError: an index or a header is broken, or a shard leads out of the folder.
        """
        indexes = sorted(folder.glob(INDEX_PATTERN))
        if len(indexes) == 1:
            return cls(folder, _from_index_file(folder, indexes[0]))
        # None, or several (a folder with two exports): the headers are the truth.
        files: dict[str, Path] = {}
        for shard in sorted(folder.glob("*.safetensors")):
            with _opened(shard) as tensors:
                files.update(dict.fromkeys(tensors.keys(), shard))
        return cls(folder, files)

    def first_of(self, names: Sequence[str]) -> str | None:
        """Return the first of ``names`` that this checkpoint has, None when it has none of them."""
        return next((name for name in names if name in self.files), None)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, from its header."""
        with _opened(self._file(name)) as tensors:
            return tuple(_slice(tensors, name, self._file(name)).get_shape())

    def metadata(self, name: str) -> Mapping[str, str]:
        """Metadata of the file that holds a tensor."""
        with _opened(self._file(name)) as tensors:
            return tensors.metadata() or {}

    def read(self, name: str) -> torch.Tensor:
        """Read one whole tensor, in its stored dtype."""
        with _opened(self._file(name)) as tensors:
            data: torch.Tensor = _slice(tensors, name, self._file(name))[...]
            return data

    def read_rows(self, name: str, rows: Sequence[int]) -> torch.Tensor:
        """Read some rows of a 2-D tensor: ``[len(rows), columns]``, in its stored dtype.

        Raises:
            CheckpointError: no rows are asked for, because the tensor has none.
        """
        if not rows:
            raise CheckpointError(
                f"{self.folder}: tensor '{name}' has no rows; download the checkpoint again"
            )
        with _opened(self._file(name)) as tensors:
            part = _slice(tensors, name, self._file(name))
            return torch.cat([part[row : row + 1] for row in rows])

    def read_range(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Read rows ``start`` to ``stop`` of a tensor, in its stored dtype."""
        with _opened(self._file(name)) as tensors:
            rows: torch.Tensor = _slice(tensors, name, self._file(name))[start:stop]
            return rows

    def _file(self, name: str) -> Path:
        try:
            return self.files[name]
        except KeyError:
            raise CheckpointError(
                f"{self.folder} has no tensor '{name}' ({len(self.files)} tensors seen)"
            ) from None


def _from_index_file(folder: Path, index: Path) -> dict[str, Path]:
    weight_map = as_object(read_json_object(index).get("weight_map"), index, "weight_map")
    files: dict[str, Path] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or confined(folder, shard) is None:
            raise CheckpointError(
                f"{index}: tensor '{name}' is said to be in {shard!r}, which is not a file of this "
                "checkpoint; download the index again"
            )
        files[name] = folder / shard
    return files


def _opened(shard: Path):  # type: ignore[no-untyped-def]  # safetensors ships no stubs
    try:
        return safe_open(shard, framework="pt")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{shard} cannot be read ({error}); download it again") from error


def _slice(tensors, name: str, shard: Path):  # type: ignore[no-untyped-def]
    try:
        return tensors.get_slice(name)
    except SafetensorError as error:
        raise CheckpointError(
            f"{shard} has no tensor '{name}', although the index says so ({error})"
        ) from error
