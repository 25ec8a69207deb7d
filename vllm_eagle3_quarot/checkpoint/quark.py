# SPDX-License-Identifier: Apache-2.0
"""Rotations by AMD Quark: ``quantization_config.algo_config`` in ``config.json``.

Format (Quark 0.13, and the source of 0.10 and 0.11): a list with one object per algorithm. The one
named ``rotation`` (``quarot`` before 0.12) has the flags ``r1`` ... ``r4``. R1 rotates the residual
stream unless ``online_r1_rotation`` keeps it in front of each layer; its matrix is ``Hd_b / √b``
with ``b`` the ``rotation_size`` or the hidden size, for powers of two. Other sizes use tables of
Quark's own, ``random_r1`` draws from an unrecorded seed, ``trainable`` and
``optimized_rotation_path`` are learned; none of these can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.recorded_rotation import RecordedRotations, ResidualRotation
from vllm_eagle3_quarot.errors import CheckpointError

ALGORITHMS = "quantization_config.algo_config"

ROTATION_NAMES = ("rotation", "quarot")

#: Flags of a rotation that is not the fixed Hadamard matrix, and what each means.
LEARNED_OR_RANDOM = {
    "random_r1": "by a random matrix ('random_r1') whose seed is not recorded",
    "trainable": "by a trained matrix ('trainable') that is not stored",
    "train_smooth": "together with trained smoothing scales ('train_smooth') that are not stored",
    "optimized_rotation_path": "by a matrix from a file ('optimized_rotation_path') that is not "
    "part of the checkpoint",
}


def rotations_of(quantization: Mapping[str, object], path: Path) -> RecordedRotations | None:
    """Read the rotation of a ``quantization_config``; None when there is none.

    Raises:
        CheckpointError: an entry is not what the format says; the message names file and key.
    """
    algorithms = quantization.get("algo_config") or []
    if isinstance(algorithms, dict):
        algorithms = [algorithms]
    if not isinstance(algorithms, list):
        raise CheckpointError(
            f"{path}: '{ALGORITHMS}' is a {type(algorithms).__name__} where a list is expected"
        )
    for index, entry in enumerate(algorithms):
        key = f"{ALGORITHMS}[{index}]"
        algorithm = as_object(entry, path, key)
        if algorithm.get("name") in ROTATION_NAMES:
            tool = f"AMD Quark {quantization.get('version', 'of unknown version')}"
            return RecordedRotations(tool, _residual(algorithm, key, tool, path))
    return None


def _residual(
    algorithm: Mapping[str, object], key: str, tool: str, path: Path
) -> ResidualRotation | None:
    if algorithm.get("r1") is False or algorithm.get("online_r1_rotation") is True:
        return None
    if "r1" not in algorithm:
        return ResidualRotation(
            tool, key, None, obstacle="in the format of a release that does not say how"
        )
    for flag, obstacle in LEARNED_OR_RANDOM.items():
        if algorithm.get(flag):
            return ResidualRotation(tool, key, None, obstacle=obstacle)
    block = algorithm.get("rotation_size")
    if block is not None and (not isinstance(block, int) or isinstance(block, bool) or block < 1):
        raise CheckpointError(
            f"{path}: '{key}.rotation_size' is {block!r} where a positive number or null is "
            "expected"
        )
    return ResidualRotation(tool, key, "hadamard", block)
