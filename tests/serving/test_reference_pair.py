# SPDX-License-Identifier: Apache-2.0
"""A damaged or incomplete reference pair is refused with the file's name and a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tools.serving import ReferencePair, ServingError

CHECKPOINTS = ("target", "target-w8a8", "target-w8a8-quarot", "draft")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder laid out like the reference pair, with one tensor per file."""
    tensors = {"weight": np.zeros((16, 16), dtype=np.float32)}
    for name in CHECKPOINTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}", encoding="utf-8")
        save_file(tensors, tmp_path / name / "model.safetensors")
    (tmp_path / "target-w8a8-quarot" / "optional").mkdir()
    save_file(tensors, tmp_path / "target-w8a8-quarot" / "optional" / "quarot.safetensors")
    prompts = {"completions": ["one", "two"], "chats": ["three"]}
    (tmp_path / "prompts.json").write_text(json.dumps(prompts), encoding="utf-8")
    return tmp_path


def test_a_complete_pair_is_loaded(folder: Path) -> None:
    pair = ReferencePair.load(folder)
    assert pair.rotated == folder / "target-w8a8-quarot"
    assert pair.completions == ("one", "two")
    assert pair.chats == ("three",)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize(
    ("path", "damage", "reason"),
    [
        ("prompts.json", Path.unlink, "is missing"),
        ("prompts.json", truncate, "is damaged"),
        ("draft/config.json", Path.unlink, "is missing"),
        ("target/model.safetensors", Path.unlink, r"holds no \*\.safetensors file"),
        ("target-w8a8/model.safetensors", truncate, "is damaged"),
        ("target-w8a8-quarot/optional/quarot.safetensors", Path.unlink, "is missing"),
        ("target-w8a8-quarot/optional/quarot.safetensors", truncate, "is damaged"),
    ],
)
def test_damage_is_named(
    folder: Path, path: str, damage: Callable[[Path], None], reason: str
) -> None:
    damage(folder / path)
    with pytest.raises(ServingError, match=reason) as caught:
        ReferencePair.load(folder)
    message = str(caught.value)
    assert str((folder / path).parent) in message
    assert "tools/reference_pair" in message
    assert "\n" not in message


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"nowhere/prompts\.json is missing"):
        ReferencePair.load(tmp_path / "nowhere")
