# SPDX-License-Identifier: Apache-2.0
"""Reading the JSON files of a checkpoint, which is a download from strangers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vllm_eagle3_quarot.errors import CheckpointError

#: A `quant_model_description.json` of a 1 T parameter MoE is about 30 MB; anything far beyond is
#: not a description and would only exhaust memory.
MAX_JSON_BYTES = 256 * 2**20


def read_json_object(path: Path) -> Mapping[str, object]:
    """Return the JSON object in ``path``.

    Raises:
        CheckpointError: the file cannot be read, is too large, is not JSON, is nested too deeply or
            is not an object; the message names the file.
    """
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise CheckpointError(
                f"{path} has {size} bytes, more than the {MAX_JSON_BYTES} of any configuration "
                "file; it was not read. Is this the right checkpoint folder?"
            )
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text; download the file again") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON ({error}); download the file again"
        ) from error
    if not isinstance(document, dict):
        raise CheckpointError(
            f"{path} holds a JSON {type(document).__name__} where an object is expected; "
            "download the file again"
        )
    return document


def as_object(value: object, path: Path, key: str) -> Mapping[str, object]:
    """Return ``value`` when it is a JSON object; ``key`` names it in the error.

    Raises:
        CheckpointError: ``value`` is of another type.
    """
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{path}: '{key}' is a {type(value).__name__} where an object is expected"
        )
    return value
