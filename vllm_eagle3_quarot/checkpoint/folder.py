# SPDX-License-Identifier: Apache-2.0
"""From what a user calls a model (folder or hub id) to a folder, and which files belong to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vllm_eagle3_quarot.errors import CheckpointError

#: Everything that we read besides weights. The engine downloads weights and configuration by its
#: own patterns, which leave `optional/` out.
SMALL_FILES = ("*.json", "optional/*.safetensors")

#: vLLM's own switch between the two hubs.
MODELSCOPE_VARIABLE = "VLLM_USE_MODELSCOPE"


def model_folder(
    model: str,
    revision: str | None = None,
    patterns: Sequence[str] = SMALL_FILES,
    *,
    cache: str | None = None,
    local: bool = False,
) -> Path:
    """Return the local folder of ``model``, a folder or a hub id (Hugging Face or ModelScope).

    A hub id is answered from the local cache (``cache``, or the hub's own when None); what is
    missing there of the files that match ``patterns`` is downloaded unless the hub is switched off
    (``HF_HUB_OFFLINE``) or the answer has to be ``local``. ModelScope is asked when
    ``VLLM_USE_MODELSCOPE`` is set.

    Raises:
        CheckpointError: there is no such folder and the hub has no such model.
    """
    path = Path(model)
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"{model} is a file where a checkpoint folder is expected")
    if os.environ.get(MODELSCOPE_VARIABLE, "").strip().lower() in ("1", "true"):
        return _from_modelscope(model, revision, patterns, cache, local)
    return _from_hugging_face(model, revision, patterns, cache, local)


def _from_hugging_face(
    model: str, revision: str | None, patterns: Sequence[str], cache: str | None, local: bool
) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            model,
            revision=revision,
            cache_dir=cache,
            allow_patterns=list(patterns),
            local_files_only=local,
        )
        return Path(folder)
    except HFValidationError as error:
        raise CheckpointError(
            f"'{model}' is neither a folder nor a hub id (owner/name); check the path"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"'{model}' is not a folder and cannot be had from the hub: {error}. "
            "Download the checkpoint and pass its folder"
        ) from error


def _from_modelscope(
    model: str, revision: str | None, patterns: Sequence[str], cache: str | None, local: bool
) -> Path:
    try:
        from modelscope import snapshot_download
    except ImportError as error:
        raise CheckpointError(
            f"'{model}' is not a folder, and {MODELSCOPE_VARIABLE} asks for ModelScope, whose "
            "client is not installed: pip install modelscope, or pass the checkpoint's folder"
        ) from error
    offline = local or os.environ.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true")
    try:
        return Path(
            snapshot_download(
                model,
                revision=revision,
                cache_dir=cache,
                allow_patterns=list(patterns),
                local_files_only=offline,
            )
        )
    except Exception as error:  # its errors come from several libraries and share no class
        raise CheckpointError(
            f"'{model}' is not a folder and cannot be had from ModelScope: {error}. "
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
