# SPDX-License-Identifier: Apache-2.0
"""The original token table, read block by block from a rotated target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import embedding, write_draft, write_json, write_target
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.draft.copied_embedding import CopiedEmbedding
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation, row_blocks
from vllm_eagle3_quarot.settings import Settings

Q = real_rotation(192)
TABLE = embedding(96, 192)

#: The rotated table is stored in bf16: entries of order 1, each off by up to 2^-9 of itself.
TABLE_TOLERANCE = 0.02


def _copied(folder: Path, vocabulary: int = 96) -> CopiedEmbedding:
    rotation = Rotation.from_dense(Q, source="q.safetensors")
    return CopiedEmbedding.of(TargetFacts.from_folder(folder), rotation, vocabulary)


@pytest.mark.parametrize(("start", "stop"), [(0, 96), (0, 50), (50, 96), (7, 7)])
def test_blocks_are_the_original_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, stop: int
) -> None:
    """Any range, as ranks of a vocabulary-parallel table need it; no more than it is read."""
    monkeypatch.setattr(row_blocks, "ELEMENTS_AT_ONCE", 20 * 192)
    copied = _copied(write_target(tmp_path / "target", Q))
    read = TensorIndex.read_range
    ranges = []

    def counted(self: TensorIndex, name: str, first: int, last: int) -> torch.Tensor:
        ranges.append((first, last))
        return read(self, name, first, last)

    monkeypatch.setattr(TensorIndex, "read_range", counted)
    rows = torch.full((96, 192), torch.nan)
    for first, block in copied.blocks(start, stop):
        rows[first : first + len(block)] = block
    assert torch.allclose(rows[start:stop], TABLE[start:stop], atol=TABLE_TOLERANCE)
    assert bool(rows[:start].isnan().all()) and bool(rows[stop:].isnan().all())
    assert all(last - first <= 20 and first >= start and last <= stop for first, last in ranges)


def _change_table(folder: Path, table: torch.Tensor | None) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.embed_tokens.weight"]
    if table is not None:
        tensors["model.embed_tokens.weight"] = table
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (None, r"none under one of the names model\.embed_tokens\.weight"),
        (torch.zeros(96, 192, dtype=torch.int8), r"quantised \(torch\.int8\)"),
        (torch.zeros(90, 192), r"\[90, 192\].*each of its 96 ids"),
        (torch.zeros(96, 64), r"\[96, 64\].*192 channels"),
    ],
)
def test_table_that_cannot_be_copied_is_refused(
    tmp_path: Path, table: torch.Tensor | None, reason: str
) -> None:
    folder = write_target(tmp_path / "target", Q)
    _change_table(folder, table)
    with pytest.raises(UnsupportedPairError, match=reason):
        _copied(folder)


@pytest.mark.parametrize(
    ("table", "stages", "expected"),
    [
        (None, 1, "shared"),
        (None, 2, "copied"),
        (TABLE, 1, "shared"),
        (TABLE, 2, "copied"),
        (TABLE + 0.2 * embedding(96, 192, seed=8), 2, "own"),
    ],
)
def test_what_would_be_shared_is_copied_in_a_pipeline(
    tmp_path: Path, table: torch.Tensor | None, stages: int, expected: str
) -> None:
    target = write_target(tmp_path / "target", Q)
    draft = write_draft(tmp_path / "draft", table, hidden=192)
    tensors = load_file(draft / "model.safetensors")
    save_file({**tensors, "lm_head.weight": TABLE}, draft / "model.safetensors")
    write_json(draft / "config.json", {"hidden_size": 192, "vocab_size": 96})
    correction = correction_of(target, str(draft), Settings(), pipeline_stages=stages)
    assert correction is not None
    assert correction.embedding == expected
    assert (correction.copied_embedding is not None) == (expected == "copied")
    assert ("a copy of the target's embedding" in correction.summary()) == (expected == "copied")
