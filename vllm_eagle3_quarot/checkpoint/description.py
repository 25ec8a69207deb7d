# SPDX-License-Identifier: Apache-2.0
"""``quant_model_description.json``, the file in which msModelSlim says what it did.

Format (msModelSlim 26.1.0, read from checkpoints that the tool wrote): one flat object. Most keys
are tensor names with a quantisation type (``"FLOAT"``, ``"W8A8"``, ``"W8A8_DYNAMIC"`` ...); the
rest are the keys of :data:`HEADER_KEYS`. The residual rotation is pointed to by
``optional.quarot.rotation_map.global_rotation``, a path relative to the checkpoint folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import as_object, read_json_object
from vllm_eagle3_quarot.errors import CheckpointError

DESCRIPTION_FILE = "quant_model_description.json"

#: Keys that are not tensor names.
HEADER_KEYS = frozenset(
    {
        "version",
        "model_quant_type",
        "group_size",
        "metadata",
        "optional",
        "is_rot_used",
        "kv_cache_type",
        "kv_quant_type",
        "fa_quant_type",
        "indexer_quant_type",
        "reduce_quant_type",
    }
)


@dataclass(frozen=True)
class QuantDescription:
    """What the quantiser recorded about one checkpoint.

    Attributes:
        path: the description file.
        tensor_types: quantisation type of every stored tensor, by its exact name.
        model_quant_type: the tool's summary type, e.g. ``"W8A8"``; None when absent.
        metadata: the ``metadata`` object; ``metadata["quarot"]`` describes online rotations inside
            layers, which leave the residual stream alone.
        rotation_pointer: path of the residual rotation as written, None when there is none. It is
            input from outside: :func:`vllm_eagle3_quarot.checkpoint.sidecar.find_sidecar` confines
            it.
        claims_rotation: the description says that the residual stream is rotated, with or without
            telling where ``Q`` is.
    """

    path: Path
    tensor_types: Mapping[str, str]
    model_quant_type: str | None
    metadata: Mapping[str, object]
    rotation_pointer: str | None
    claims_rotation: bool

    @classmethod
    def from_folder(cls, folder: Path) -> QuantDescription | None:
        """Read the description of the checkpoint in ``folder``; None when it has none.

        Raises:
            CheckpointError: the file is not what the format says; the message names file and key.
        """
        path = folder / DESCRIPTION_FILE
        if not path.exists():
            return None
        document = read_json_object(path)
        model_quant_type = document.get("model_quant_type")
        if model_quant_type is not None and not isinstance(model_quant_type, str):
            raise CheckpointError(
                f"{path}: 'model_quant_type' is a {type(model_quant_type).__name__} where a string "
                "is expected"
            )
        pointer = _rotation_pointer(document, path)
        return cls(
            path=path,
            tensor_types={
                name: value
                for name, value in document.items()
                if name not in HEADER_KEYS and isinstance(value, str)
            },
            model_quant_type=model_quant_type,
            metadata=as_object(document.get("metadata") or {}, path, "metadata"),
            rotation_pointer=pointer,
            claims_rotation=pointer is not None or document.get("is_rot_used") is True,
        )


def _rotation_pointer(document: Mapping[str, object], path: Path) -> str | None:
    """Follow ``optional.quarot.rotation_map.global_rotation``; an absent level means none."""
    level: Mapping[str, object] = document
    trail: list[str] = []
    for key in ("optional", "quarot", "rotation_map"):
        if level.get(key) is None:
            return None
        trail.append(key)
        level = as_object(level[key], path, ".".join(trail))
    pointer = level.get("global_rotation")
    if pointer is not None and not isinstance(pointer, str):
        raise CheckpointError(
            f"{path}: 'optional.quarot.rotation_map.global_rotation' is a "
            f"{type(pointer).__name__} where a path is expected"
        )
    return pointer
