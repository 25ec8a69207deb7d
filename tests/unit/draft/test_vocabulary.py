# SPDX-License-Identifier: Apache-2.0
"""Maps between the draft's and the target's vocabulary; every fault names its first bad entry."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.support.checkpoints import write_json
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.draft.vocabulary import verify_maps, verify_vocabulary
from vllm_eagle3_quarot.errors import UnsupportedPairError

TOTAL = 40
IDS = torch.tensor([0, 1, 2, 5, 9, 20, 21, 39])
OFFSETS = IDS - torch.arange(8)


def _marks(ids: torch.Tensor = IDS) -> torch.Tensor:
    return torch.zeros(TOTAL, dtype=torch.bool).index_fill(0, ids, True)


def _draft(folder: Path, head: int, **tensors: torch.Tensor) -> DraftFacts:
    write_json(folder / "config.json", {"hidden_size": 4, "vocab_size": TOTAL})
    save_file({"lm_head.weight": torch.ones(head, 4), **tensors}, folder / "model.safetensors")
    return DraftFacts(folder)


@pytest.mark.variants(14)
def test_offsets_with_and_without_marks(tmp_path: Path) -> None:
    verify_vocabulary(_draft(tmp_path, 8, d2t=OFFSETS, t2d=_marks()))
    verify_maps(OFFSETS, None, TOTAL, "draft")
    verify_maps(OFFSETS.int(), _marks().to(torch.uint8), TOTAL, "draft")


@pytest.mark.variants(14)
def test_full_vocabulary_needs_no_map_and_allows_zeros(tmp_path: Path) -> None:
    verify_vocabulary(_draft(tmp_path, TOTAL))
    zeros = torch.zeros(TOTAL, dtype=torch.long)
    verify_maps(zeros, torch.ones(TOTAL, dtype=torch.bool), TOTAL, "draft")


@given(st.sets(st.integers(0, TOTAL - 1), min_size=1))
def test_offsets_of_any_selection_are_accepted(selection: set[int]) -> None:
    ids = torch.tensor(sorted(selection))
    verify_maps(ids - torch.arange(len(ids)), _marks(ids), TOTAL, "draft")


def _with(index: int, value: int) -> torch.Tensor:
    changed = OFFSETS.clone()
    changed[index] = value
    return changed


@pytest.mark.variants(14)
@pytest.mark.parametrize(
    ("offsets", "marks", "reason"),
    [
        (IDS, _marks(), "holds target ids"),
        (torch.arange(30, 38), None, "holds target ids"),
        (_with(3, 1), _marks(), r"d2t\[4\]|d2t\[3\].*does not mark|'d2t\[3\]' = 1"),
        (_with(4, 1), None, r"'d2t\[4\]' = 1 maps word 4 .* to id 5, which another word"),
        (_with(7, 33), None, r"'d2t\[7\]' = 33 maps word 7 .* to id 40, outside"),
        (_with(0, -1), None, r"'d2t\[0\]' = -1 maps word 0 .* to id -1, outside"),
        (OFFSETS, _marks(IDS[:-1]), "'t2d' marks 7 words, 'd2t' maps 8"),
        (OFFSETS, _marks(torch.tensor([0, 1, 2, 5, 9, 20, 21, 38])), r"'d2t\[7\]'.*not mark"),
        (OFFSETS, torch.ones(TOTAL - 1), "'t2d' has shape"),
    ],
)
def test_maps_that_cannot_be_right(
    offsets: torch.Tensor, marks: torch.Tensor | None, reason: str
) -> None:
    with pytest.raises(UnsupportedPairError, match=reason) as caught:
        verify_maps(offsets, marks, TOTAL, "the draft folder")
    assert "the draft folder" in str(caught.value)


@pytest.mark.variants(14)
def test_absolute_ids_of_a_full_vocabulary_are_named() -> None:
    every = torch.arange(TOTAL)
    with pytest.raises(UnsupportedPairError, match="holds target ids"):
        verify_maps(every, torch.ones(TOTAL, dtype=torch.bool), TOTAL, "draft")


@pytest.mark.variants(14)
def test_missing_map_of_a_reduced_head(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPairError, match="8 of 40 words but there is no 'd2t'"):
        verify_vocabulary(_draft(tmp_path, 8))


@pytest.mark.variants(14)
def test_map_of_another_head(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPairError, match=r"'d2t' has shape \(7,\).*8 words"):
        verify_vocabulary(_draft(tmp_path, 8, d2t=OFFSETS[:7].contiguous()))
