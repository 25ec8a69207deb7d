# SPDX-License-Identifier: Apache-2.0
"""From what a user calls a model (folder or hub id) to a folder, and which files belong to it."""

from __future__ import annotations

from pathlib import Path

from vllm_eagle3_quarot.errors import CheckpointError

#: Everything that we read besides weights. The engine downloads weights and configuration by its
#: own patterns, which leave `optional/` out.
SMALL_FILES = ["*.json", "optional/*.safetensors"]


def model_folder(model: str, revision: str | None = None) -> Path:
    """Return the local folder of ``model``, a folder or a Hugging Face hub id.

    A hub id is answered from the local cache; what is missing there of :data:`SMALL_FILES` is
    downloaded unless the hub is switched off (``HF_HUB_OFFLINE``).

    Raises:
        CheckpointError: there is no such folder and the hub has no such model.
    """
    path = Path(model)
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"{model} is a file where a checkpoint folder is expected")

    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=SMALL_FILES))
    except HFValidationError as error:
        raise CheckpointError(
            f"'{model}' is neither a folder nor a hub id (owner/name); check the path"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"'{model}' is not a folder and cannot be had from the hub: {error}. "
            "Download the checkpoint and pass its folder"
        ) from error


def confined(folder: Path, relative: str) -> Path | None:
    """Return ``folder / relative`` when it stays inside the checkpoint, else None.

    Links are followed first. A hub cache keeps its files in a ``blobs`` folder beside the snapshot
    and links to them, so that folder counts as inside for a folder named ``snapshots/<revision>``.
    """
    if "\0" in relative:
        return None
    root = folder.resolve()
    target = (root / relative).resolve()
    allowed = [root]
    if root.parent.name == "snapshots":
        # The cache layout is fixed: models--owner--name/{blobs,snapshots/<revision>}.
        allowed.append(root.parent.parent / "blobs")
    lexically_inside = not Path(relative).is_absolute() and ".." not in Path(relative).parts
    if lexically_inside and any(target.is_relative_to(inside) for inside in allowed):
        return target
    return None
