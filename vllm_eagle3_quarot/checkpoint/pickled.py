# SPDX-License-Identifier: Apache-2.0
"""Drafts published as ``pytorch_model.bin``: the interface of a tensor index over a pickle.

Loading is ``weights_only``, so a pickle that wants to run code is refused by torch.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.errors import CheckpointError

PATTERN = "*.bin"


@dataclass(frozen=True)
class PickledTensors:
    """Tensors of the ``.bin`` files of a folder, mapped from disk rather than read.

    Attributes:
        folder: the checkpoint.
        values: tensor name to tensor.
    """

    folder: Path
    values: Mapping[str, torch.Tensor]

    @classmethod
    def from_folder(cls, folder: Path) -> PickledTensors:
        """Open every ``.bin`` file of the folder; none gives an empty mapping.

        Raises:
            CheckpointError: a file is no plain dictionary of tensors.
        """
        values: dict[str, torch.Tensor] = {}
        for path in sorted(folder.glob(PATTERN)):
            try:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
                raise CheckpointError(
                    f"{path} cannot be read as plain tensors ({_first_line(error)}); nothing in it "
                    "was executed. Use the safetensors file of this draft"
                ) from error
            if not isinstance(content, dict):
                raise CheckpointError(f"{path} is a {type(content).__name__}, not named tensors")
            values.update({k: v for k, v in content.items() if isinstance(v, torch.Tensor)})
        return cls(folder, values)

    @property
    def files(self) -> Mapping[str, torch.Tensor]:
        """Names of all tensors, as for a safetensors index."""
        return self.values

    def first_of(self, names: Sequence[str]) -> str | None:
        """Return the first of ``names`` that is here, None when none is."""
        return next((name for name in names if name in self.values), None)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return tuple(self.read(name).shape)

    def read(self, name: str) -> torch.Tensor:
        """One whole tensor, in its stored dtype."""
        try:
            return self.values[name]
        except KeyError:
            raise CheckpointError(
                f"{self.folder} has no tensor '{name}' ({len(self.values)} tensors seen)"
            ) from None

    def read_rows(self, name: str, rows: Sequence[int]) -> torch.Tensor:
        """Some rows of a 2-D tensor: ``[len(rows), columns]``."""
        return self.read(name)[list(rows)]

    def read_range(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop`` of a tensor."""
        return self.read(name)[start:stop]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
