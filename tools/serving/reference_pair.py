# SPDX-License-Identifier: Apache-2.0
"""The checkpoints and prompts in ``tests/fixtures/reference_pair``, checked before use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vllm_eagle3_quarot.errors import ServingError

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "reference_pair"
REMEDY = "restore it with `git checkout -- tests/fixtures`, or make it with tools/reference_pair"


@dataclass(frozen=True)
class ReferencePair:
    """Checkpoint folders and prompts; see ``tools/reference_pair`` for how they are made.

    Attributes:
        original: the target as it was trained.
        unrotated: the same in W8A8, not rotated.
        rotated: the same in W8A8, rotated by QuaRot, with its sidecar.
        draft: an Eagle3 draft trained on the original target.
        completions: prompts for text completion.
        chats: user messages for chat completion.
    """

    original: Path
    unrotated: Path
    rotated: Path
    draft: Path
    completions: tuple[str, ...]
    chats: tuple[str, ...]

    @classmethod
    def load(cls, folder: Path = FOLDER) -> ReferencePair:
        """Check that every file is there and whole.

        Raises:
            ServingError: a file is missing or damaged; the message names it and the remedy.
        """
        prompts = _read_prompts(folder / "prompts.json")
        pair = cls(
            original=folder / "target",
            unrotated=folder / "target-w8a8",
            rotated=folder / "target-w8a8-quarot",
            draft=folder / "draft",
            completions=prompts["completions"],
            chats=prompts["chats"],
        )
        for checkpoint in (pair.original, pair.unrotated, pair.rotated, pair.draft):
            _check_checkpoint(checkpoint)
        _check_tensors(pair.rotated / "optional" / "quarot.safetensors")
        return pair


def _read_prompts(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {kind: tuple(content[kind]) for kind in ("completions", "chats")}
    except FileNotFoundError:
        raise ServingError(f"{path} is missing: {REMEDY}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ServingError(f"{path} is damaged ({error!r}): {REMEDY}") from None


def _check_checkpoint(folder: Path) -> None:
    config = folder / "config.json"
    if not config.is_file():
        raise ServingError(f"{config} is missing: {REMEDY}")
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        raise ServingError(f"{folder} holds no *.safetensors file: {REMEDY}")
    for shard in shards:
        _check_tensors(shard)


def _check_tensors(path: Path) -> None:
    if not path.is_file():
        raise ServingError(f"{path} is missing: {REMEDY}")
    try:
        with safe_open(path, framework="numpy"):
            pass  # opening compares the header with the file's size
    except (SafetensorError, OSError) as error:
        raise ServingError(f"{path} is damaged ({error}): {REMEDY}") from None
