# SPDX-License-Identifier: Apache-2.0
"""Having some tensors of a model at hand without downloading all of its shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.folder import SMALL_FILES, model_folder
from vllm_eagle3_quarot.checkpoint.names import (
    ROTATED_NORM,
    TARGET_EMBEDDING,
    TARGET_FINAL_NORM,
    TARGET_HEAD,
)
from vllm_eagle3_quarot.checkpoint.tensors import INDEX_PATTERN, TensorIndex

#: What an offline tool reads of a target: tables and norm, no layers.
TABLE_NAMES = (*TARGET_EMBEDDING, *TARGET_HEAD, *TARGET_FINAL_NORM, *ROTATED_NORM)

#: A draft is needed as a whole; patterns are matched against names without their folders as well.
WHOLE_MODEL = ("*.json", "*.safetensors", "*.bin", "*.txt", "*.model", "*.jinja", "*.py", "*.md")

#: Names of the one file of weights of a model without an index.
SINGLE_FILES = ("model.safetensors", "quant_model_weights.safetensors")


def folder_with_tables(model: str, names: Sequence[str] = TABLE_NAMES) -> Path:
    """Return the folder of a target with the shards in which tensors of ``names`` are.

    Raises:
        CheckpointError: there is no such model, or its index is broken.
    """
    folder = model_folder(model)
    if Path(model).is_dir():
        return folder
    shards = list(SINGLE_FILES)
    if len(list(folder.glob(INDEX_PATTERN))) == 1:
        files = TensorIndex.from_folder(folder).files
        shards = sorted({str(files[name].relative_to(folder)) for name in names if name in files})
    return model_folder(model, patterns=(*SMALL_FILES, "*.yaml", *shards))


def whole_folder(model: str) -> Path:
    """Return the folder of a model with all of its files.

    Raises:
        CheckpointError: there is no such model.
    """
    return model_folder(model, patterns=WHOLE_MODEL)
