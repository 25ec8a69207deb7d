# SPDX-License-Identifier: Apache-2.0
"""Where a checkpoint keeps its rotation: the sidecar file.

msModelSlim writes ``optional/quarot.safetensors`` with one tensor ``global_rotation`` (fp32
``[H, H]``) and points to it from the description. Its multi-device saver damages the pointer (it is
empty, or starts with ``..``) while the file is where it always is, so the file on disk is the
second place to look.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from vllm_eagle3_quarot.checkpoint.description import QuantDescription
from vllm_eagle3_quarot.checkpoint.folder import confined
from vllm_eagle3_quarot.errors import RotationError

SIDECAR_FILE = "optional/quarot.safetensors"
SIDECAR_KEY = "global_rotation"

REMEDY = (
    "restore the file from the quantised checkpoint, pass the rotation with "
    '--additional-config \'{"eagle3_quarot": {"rotation": "<file>"}}\', or quantise again'
)


def find_sidecar(folder: Path, description: QuantDescription | None) -> Path | None:
    """Return the sidecar of the checkpoint in ``folder``, None when it has none.

    The description's pointer comes first. A pointer that is empty or leads out of the folder is
    ignored in favour of :data:`SIDECAR_FILE`; a pointer to a missing file inside the folder is an
    error, because somebody removed what the checkpoint says it needs.

    Raises:
        RotationError: the file pointed to is missing, or links out of the folder.
    """
    if description is not None and description.rotation_pointer:
        pointed = confined(folder, description.rotation_pointer)
        if pointed is not None:
            if not _is_file(pointed):
                raise RotationError(
                    f"{description.path} names '{description.rotation_pointer}' as the rotation of "
                    f"this checkpoint, but there is no such file. Without it every Eagle3 proposal "
                    f"would be rejected: {REMEDY}"
                )
            return pointed
    if not (folder / SIDECAR_FILE).exists():
        return None
    fallback = confined(folder, SIDECAR_FILE)
    if fallback is None:
        raise RotationError(
            f"{folder / SIDECAR_FILE} links out of the checkpoint folder; it was not read: {REMEDY}"
        )
    return fallback


def read_rotation_tensor(path: Path) -> torch.Tensor:
    """Read ``global_rotation`` from a sidecar; shape and dtype are the caller's to check.

    Raises:
        RotationError: no such file, not safetensors, truncated, or no such tensor.
    """
    if not _is_file(path):
        raise RotationError(f"there is no rotation file {path}: {REMEDY}")
    try:
        with safe_open(path, framework="pt") as tensors:
            names = list(tensors.keys())
            if SIDECAR_KEY not in names:
                raise RotationError(
                    f"{path} has no tensor '{SIDECAR_KEY}' (it has: {_shortened(names)}): {REMEDY}"
                )
            tensor: torch.Tensor = tensors.get_tensor(SIDECAR_KEY)
            return tensor
    except (SafetensorError, OSError, ValueError) as error:
        raise RotationError(f"{path} cannot be read ({error}): {REMEDY}") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that the file system does not take, for one
        return False


def _shortened(names: list[str], limit: int = 8) -> str:
    shown = ", ".join(sorted(names)[:limit]) or "nothing"
    return shown if len(names) <= limit else f"{shown}, ... {len(names)} in all"
