# SPDX-License-Identifier: Apache-2.0
"""Whose token table is used, and what the draft's own table says about the rotation."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from tests.support.checkpoints import embedding, write_draft, write_sidecar, write_target
from tests.support.rotations import hadamard_rotation, real_rotation
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.embedding import choose_embedding
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation

Q = hadamard_rotation(64)


def _choose(
    folder: Path, table: torch.Tensor | None, q: torch.Tensor = Q, *, strict: bool = True
) -> str:
    target = write_target(folder / "target", Q)
    draft = write_draft(folder / "draft", table)
    rotation = Rotation.from_dense(q, source="q.safetensors")
    return choose_embedding(
        TargetFacts.from_folder(target), DraftFacts(draft), rotation, strict=strict
    )


@pytest.mark.variants(2)
def test_draft_without_a_table_shares(tmp_path: Path) -> None:
    assert _choose(tmp_path, None) == "shared"


@pytest.mark.variants(2)
def test_copy_of_the_original_table_shares(tmp_path: Path) -> None:
    assert _choose(tmp_path, embedding(96, 64)) == "shared"


@pytest.mark.parametrize("row", [0, 1, 95])
def test_one_row_that_was_trained_further_keeps_the_draft_table(tmp_path: Path, row: int) -> None:
    """Every row is compared: tokens that were added for a chat format are few."""
    table = embedding(96, 64)
    table[row] += 0.1 * table[row].norm() * torch.nn.functional.normalize(torch.ones(64), dim=0)
    assert _choose(tmp_path, table) == "own"


@pytest.mark.variants(2)
def test_fine_tuned_table_is_kept(tmp_path: Path) -> None:
    assert _choose(tmp_path, embedding(96, 64) + 0.2 * embedding(96, 64, seed=8)) == "own"


def test_table_of_another_vocabulary_size_is_kept(tmp_path: Path) -> None:
    assert _choose(tmp_path, embedding(96, 64)[:80]) == "own"


def test_token_table_is_found_beside_a_vision_embedding(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#8765: the first name with "embed" in it was a patch embedding."""
    q = real_rotation(192)
    target = write_target(tmp_path / "target", q, nested=True)
    draft = write_draft(tmp_path / "draft", embedding(96, 192), hidden=192)
    rotation = Rotation.from_checkpoint(target)
    facts = TargetFacts.from_folder(target)
    assert choose_embedding(facts, DraftFacts(draft), rotation, strict=True) == "shared"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [(Q.T.contiguous(), "transpose"), (hadamard_rotation(64, seed=1), "does not belong")],
    ids=["transposed", "stale"],
)
def test_wrong_rotation_is_refused_and_named(
    tmp_path: Path, wrong: torch.Tensor, reason: str
) -> None:
    """msmodelslim#105: a rotation that does not map the tables must not serve."""
    with pytest.raises(RotationError, match=reason) as caught:
        _choose(tmp_path, embedding(96, 64), wrong)
    assert "q.safetensors" in str(caught.value)


def test_draft_already_in_the_rotated_basis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPairError, match="aligned"):
        _choose(tmp_path, embedding(96, 64) @ Q)


@pytest.mark.variants(2)
@pytest.mark.parametrize(("strict", "choice"), [(True, "shared"), (False, "own")])
def test_random_table_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, strict: bool, choice: str
) -> None:
    """TorchSpec#38: a trainer exported an unused random table with the draft."""
    table = torch.randn(96, 64, generator=torch.Generator().manual_seed(5)) * 0.02
    with caplog.at_level(logging.WARNING, logger="vllm.eagle3_quarot"):
        assert _choose(tmp_path, table, strict=strict) == choice
    assert "looks random" in caplog.text


def test_unrelated_trained_table_is_kept_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="vllm.eagle3_quarot"):
        assert _choose(tmp_path, embedding(96, 64, seed=123)) == "own"
    assert "could not be verified" in caplog.text


def test_narrow_draft_without_a_table_is_refused(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", Q)
    draft = write_draft(tmp_path / "draft", None, hidden=32)
    with pytest.raises(UnsupportedPairError, match=r"32 channels wide.*64"):
        choose_embedding(
            TargetFacts.from_folder(target),
            DraftFacts(draft),
            Rotation.from_dense(Q),
            strict=True,
        )


def test_sidecar_exchanged_after_quantising_is_noticed(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", Q)
    write_sidecar(target, hadamard_rotation(64, seed=2))
    draft = write_draft(tmp_path / "draft", embedding(96, 64))
    with pytest.raises(RotationError, match="does not belong"):
        choose_embedding(
            TargetFacts.from_folder(target),
            DraftFacts(draft),
            Rotation.from_checkpoint(target),
            strict=True,
        )
