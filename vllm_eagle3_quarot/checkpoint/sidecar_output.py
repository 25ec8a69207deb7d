# SPDX-License-Identifier: Apache-2.0
"""Writing a rotation as the file that :mod:`vllm_eagle3_quarot.checkpoint.sidecar` reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.safetensors_file import NewTensor, tensor_bytes, write_file
from vllm_eagle3_quarot.checkpoint.sidecar import SIDECAR_KEY
from vllm_eagle3_quarot.errors import CheckpointError


def write_rotation(
    path: Path,
    size: int,
    rows: Iterable[torch.Tensor],
    metadata: Mapping[str, str],
    *,
    overwrite: bool = False,
) -> None:
    """Write ``global_rotation`` fp32 ``[size, size]``, given in groups of rows, to ``path``.

    The file is written beside its place and renamed, so it is there completely or not at all.

    Raises:
        CheckpointError: there is a file and ``overwrite`` is off, or it cannot be written.
    """
    if path.exists() and not overwrite:
        raise CheckpointError(
            f"{path} exists already; nothing was written. Choose another file, or pass --overwrite"
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    pieces = (tensor_bytes(group) for group in rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_file(partial, [NewTensor(SIDECAR_KEY, "F32", (size, size), pieces)], metadata)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{path} could not be written: {error.strerror or error}") from error
