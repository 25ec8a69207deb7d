# SPDX-License-Identifier: Apache-2.0
"""Rotations by llm-compressor: ``quantization_config.transform_config`` in ``config.json``.

Format (compressed-tensors 0.17 and 0.19, read from checkpoints that llm-compressor 0.14 wrote):
``config_groups`` maps a free name (``R1``, ``R2``, ``v`` ...) to one transform: its ``type``, its
block size ``head_dim`` (null for the full width), ``randomize``, ``requires_grad`` and a list
``apply`` of places, each with ``targets`` (names, ``re:`` expressions or classes), ``ignore``,
``location`` and ``inverse``. A group rotates the residual stream when it is applied to the token
embedding: at ``weight_output`` without ``inverse`` the stored table is ``E Q``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.recorded_rotation import (
    Construction,
    RecordedRotations,
    ResidualRotation,
)
from vllm_eagle3_quarot.errors import CheckpointError

TRANSFORMS = "quantization_config.transform_config"
GROUPS = TRANSFORMS + ".config_groups"

CONSTRUCTIONS: Mapping[str, Construction] = {
    "hadamard": "hadamard",
    "random-hadamard": "random-hadamard",
}

#: Uniform random numbers, inverted for the other side: not orthogonal.
RANDOM_MATRIX = "random-matrix"

EMBEDDING_MODULES = tuple(name.removesuffix(".weight") for name in TARGET_EMBEDDING)
EMBEDDING_CLASS = "Embedding"


def rotations_of(quantization: Mapping[str, object], path: Path) -> RecordedRotations | None:
    """Read the transforms of a ``quantization_config``; None when there are none.

    Raises:
        CheckpointError: an entry is not what the format says; the message names file and key.
    """
    if not quantization.get("transform_config"):
        return None
    transforms = as_object(quantization["transform_config"], path, TRANSFORMS)
    groups = as_object(transforms.get("config_groups") or {}, path, GROUPS)
    if not groups:
        return None
    tool = (
        f"llm-compressor (compressed-tensors {quantization.get('version', 'of unknown version')})"
    )
    found = [
        residual
        for name, group in groups.items()
        if (residual := _residual(as_object(group, path, f"{GROUPS}.{name}"), name, tool, path))
    ]
    if len(found) > 1:
        keys = " and ".join(residual.key for residual in found)
        return RecordedRotations(
            tool, ResidualRotation(tool, keys, None, obstacle="by more than one transform")
        )
    return RecordedRotations(tool, found[0] if found else None)


def _residual(
    group: Mapping[str, object], name: str, tool: str, path: Path
) -> ResidualRotation | None:
    key = f"{GROUPS}.{name}"
    places = group.get("apply") or []
    if not isinstance(places, list):
        raise CheckpointError(
            f"{path}: '{key}.apply' is a {type(places).__name__} where a list is expected"
        )
    on_embedding = [
        place
        for index, entry in enumerate(places)
        if _covers_embedding(place := as_object(entry, path, f"{key}.apply[{index}]"))
    ]
    if not on_embedding:
        return None
    kind, block = group.get("type"), group.get("head_dim")
    if kind == RANDOM_MATRIX:
        obstacle = (
            f"by a matrix of type '{RANDOM_MATRIX}': uniform random numbers, which are not "
            "orthogonal, so that norms do not pass through it and the target itself is damaged"
        )
        return ResidualRotation(tool, key, None, obstacle=obstacle, is_orthogonal=False)
    construction = CONSTRUCTIONS.get(kind) if isinstance(kind, str) else None
    obstacle_found = _obstacle(group, on_embedding)
    if construction is None or obstacle_found is not None:
        why = obstacle_found or f"by a matrix of type {kind!r}, which this version cannot rebuild"
        return ResidualRotation(tool, key, None, obstacle=why)
    if block is not None and (not isinstance(block, int) or isinstance(block, bool) or block < 1):
        raise CheckpointError(
            f"{path}: '{key}.head_dim' is {block!r} where a positive number or null is expected"
        )
    return ResidualRotation(tool, key, construction, block)


def _obstacle(group: Mapping[str, object], places: list[Mapping[str, object]]) -> str | None:
    if group.get("requires_grad"):
        return "by a matrix that was trained ('requires_grad') and is not stored"
    if group.get("randomize"):
        return "by a randomly permuted matrix ('randomize') that is not stored"
    if len(places) > 1:
        return "with more than one entry for the token embedding"
    if places[0].get("location") != "weight_output" or places[0].get("inverse"):
        inverse = "inverse, " if places[0].get("inverse") else ""
        return f"in an unusual place ({inverse}location {places[0].get('location')!r})"
    return None


def _covers_embedding(place: Mapping[str, object]) -> bool:
    return _any_matches(place.get("targets")) and not _any_matches(place.get("ignore"))


def _any_matches(patterns: object) -> bool:
    """True when one of the names, ``re:`` expressions or classes means the token embedding."""
    listed = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listed, list):
        return False
    return any(_matches(pattern) for pattern in listed if isinstance(pattern, str))


def _matches(pattern: str) -> bool:
    if not pattern.startswith("re:"):
        return pattern == EMBEDDING_CLASS or pattern in EMBEDDING_MODULES
    try:
        expression = re.compile(pattern.removeprefix("re:"))
    except re.error:
        return False  # whoever applies the transforms refuses it
    return any(expression.match(name) for name in EMBEDDING_MODULES)
