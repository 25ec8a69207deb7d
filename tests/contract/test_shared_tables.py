# SPDX-License-Identifier: Apache-2.0
"""Drafts that use tables of the rotated target, through the host's own sharing code.

The right answers are those of the original target: ``E[ids]`` and ``x Wᵀ``.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from tests.support.sharing import share_as_the_host_does, target_modules
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.integrations import engine_config

ROTATIONS = {
    "hadamard": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "dense": dense_rotation(80),
}

VOCABULARY = 96

#: Tables are stored in bf16: every entry is off by up to 2^-9 of itself, a rotated-back entry by
#: that of the row's typical entry; rows are of order 1 and logits sums of H products.
TABLE_TOLERANCE = 0.03


def _write(tmp_path: Path, q: torch.Tensor, spec: DraftSpec, table: object) -> dict[str, Path]:
    own = table if isinstance(table, torch.Tensor) else None
    return {
        "target": complete_target(write_target(tmp_path / "target", q)),
        "original": write_target(tmp_path / "original", None, hidden=q.shape[0]),
        "draft": spec.write(tmp_path / "draft", own),
    }


def _checksum(target: Any) -> list[tuple[int, float]]:
    return [(id(p), float(p.double().sum())) for p in target.parameters()]


@pytest.mark.variants(4)
@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize(
    ("embedding_kind", "head_kind"),
    list(itertools.product(["absent", "copy", "own"], ["absent", "own"])),
)
def test_every_combination_of_shared_and_own_tables(
    tmp_path: Path, name: str, embedding_kind: str, head_kind: str
) -> None:
    """vllm-project/vllm-ascend#7038, #13407: each table by itself and all of them together."""
    q = ROTATIONS[name]
    size = q.shape[0]
    original = embedding(VOCABULARY, size)
    tables = {"absent": None, "copy": original, "own": 0.5 * original + embedding(96, size, seed=8)}
    spec = DraftSpec(
        hidden=size, own_embedding=embedding_kind != "absent", own_head=head_kind == "own"
    )
    files = _write(tmp_path, q, spec, tables[embedding_kind])
    stored = load_file(files["target"] / "model.safetensors")
    settings = {"original_model": str(files["original"])}
    ids, x = torch.randint(0, VOCABULARY, (11,)), torch.randn(5, size)
    with (
        loaded_draft(files["target"], files["draft"], settings=settings) as draft,
        torch.inference_mode(),
    ):
        target = target_modules(
            stored["model.embed_tokens.weight"].float(), stored["lm_head.weight"].float()
        )
        before = _checksum(target)
        share_as_the_host_does(draft, target)
        rows, logits = draft.embed_input_ids(ids), draft.compute_logits(x)
        assert _checksum(target) == before
        shares_table = draft.model.embed_tokens is target.model.embed_tokens
        shares_head = draft.lm_head is target.lm_head
        of_target = {id(parameter) for parameter in target.parameters()}
        own_tables = [
            name
            for name, parameter in draft.named_parameters()
            if name in ("model.embed_tokens.weight", "lm_head.weight")
            and id(parameter) not in of_target
        ]
    assert shares_table == (embedding_kind != "own")
    assert shares_head == (head_kind == "absent")
    # No second table of V x H is kept for what is shared.
    assert len(own_tables) == [shares_table, shares_head].count(False)
    expected_rows = tables["own"] if embedding_kind == "own" else original
    assert torch.allclose(rows, expected_rows[ids], atol=TABLE_TOLERANCE)
    head = spec.tensors()["lm_head.weight"] if head_kind == "own" else embedding(96, size, seed=4)
    assert torch.allclose(logits, x @ head.T, atol=TABLE_TOLERANCE * size**0.5)


def test_embedding_shared_with_an_unrotated_target_is_looked_up_as_it_is(tmp_path: Path) -> None:
    target_folder = complete_target(write_target(tmp_path / "target", None, hidden=64))
    draft_folder = DraftSpec(own_embedding=False, own_head=False).write(tmp_path / "draft")
    stored = load_file(target_folder / "model.safetensors")
    with loaded_draft(target_folder, draft_folder) as draft, torch.inference_mode():
        table, head = (stored[n].float() for n in ("model.embed_tokens.weight", "lm_head.weight"))
        target = target_modules(table, head)
        share_as_the_host_does(draft, target)
        ids, x = torch.arange(10), torch.randn(3, 64)
        assert torch.equal(draft.embed_input_ids(ids), table[ids])
        assert torch.allclose(draft.compute_logits(x), x @ head.T, atol=1e-4)


@pytest.mark.variants(3)
def test_reduced_head_with_a_map_stays_the_drafts_own(tmp_path: Path) -> None:
    q = ROTATIONS["hadamard"]
    spec = DraftSpec(draft_vocabulary=40)
    files = _write(tmp_path, q, spec, embedding(VOCABULARY, 64))
    x = torch.randn(4, 64)
    with loaded_draft(files["target"], files["draft"]) as draft, torch.inference_mode():
        logits = draft.compute_logits(x)
    kept = torch.arange(40) * 2
    assert torch.allclose(logits[:, kept], x @ spec.tensors()["lm_head.weight"].T, atol=1e-4)
    assert bool(torch.isneginf(logits[:, 1::2]).all())


def test_left_overs_of_training_do_not_stop_the_load(tmp_path: Path) -> None:
    """speculators files may hold the verifier's norm and head; the norm even supplies the scale."""
    q = ROTATIONS["12 x 16"]
    files = _write(tmp_path, q, DraftSpec(hidden=192, own_head=False), embedding(96, 192))
    path = files["draft"] / "model.safetensors"
    extra = {
        "verifier_norm.weight": torch.linspace(0.5, 1.5, 192),
        "verifier_lm_head.weight": torch.randn(VOCABULARY, 192),
    }
    save_file({**load_file(path), **extra}, path)
    stored = load_file(files["target"] / "model.safetensors")
    x = torch.randn(5, 192)
    with loaded_draft(files["target"], files["draft"]) as draft, torch.inference_mode():
        target = target_modules(*(stored[n].float() for n in _TARGET_TABLES))
        share_as_the_host_does(draft, target)
        logits = draft.compute_logits(x)
    expected = x @ embedding(VOCABULARY, 192, seed=4).T
    assert torch.allclose(logits, expected, atol=TABLE_TOLERANCE * 192**0.5)


_TARGET_TABLES = ("model.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize("reduced", [False, True], ids=["full", "d2t"])
@pytest.mark.parametrize("name", ROTATIONS)
def test_host_that_does_not_share_its_head_gets_the_original_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reduced: bool
) -> None:
    """vllm-ascend shares heads for other methods only; the draft's would stay uninitialised."""
    q = ROTATIONS[name]
    size = q.shape[0]
    spec = DraftSpec(hidden=size, own_head=False, draft_vocabulary=40 if reduced else None)
    files = _write(tmp_path, q, spec, embedding(VOCABULARY, size))
    monkeypatch.setattr(engine_config, "leaves_heads_uninitialised", lambda: True)
    settings = {"original_model": str(files["original"])}
    x = torch.randn(5, size)
    with (
        loaded_draft(files["target"], files["draft"], settings=settings) as draft,
        torch.inference_mode(),
    ):
        assert draft.has_own_lm_head
        logits = draft.compute_logits(x)
        # vllm-ascend's compute_draft_token_ids goes this way.
        bypassing = draft.logits_processor(draft.lm_head, x)
    expected = x @ embedding(VOCABULARY, size, seed=4).T
    kept = torch.arange(40) * 2 if reduced else torch.arange(VOCABULARY)
    tolerance = TABLE_TOLERANCE * size**0.5
    assert torch.allclose(logits[:, kept], expected[:, kept], atol=tolerance)
    assert torch.allclose(bypassing, expected[:, kept], atol=tolerance)


def test_head_that_cannot_be_restored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = ROTATIONS["hadamard"]
    files = _write(tmp_path, q, DraftSpec(own_head=False), embedding(VOCABULARY, 64))
    path = files["target"] / "model.safetensors"
    stored = load_file(path)
    save_file({**stored, "lm_head.weight": stored["lm_head.weight"].to(torch.int8)}, path)
    monkeypatch.setattr(engine_config, "leaves_heads_uninitialised", lambda: True)
    settings = {"original_model": str(files["original"])}
    with (
        pytest.raises(UnsupportedPairError, match=r"quantised 'lm_head.weight'.*own lm_head"),
        loaded_draft(files["target"], files["draft"], settings=settings),
    ):
        pass


def test_best_token_through_a_shared_head(tmp_path: Path) -> None:
    """use_local_argmax_reduction asks the logits processor for tokens, past compute_logits."""
    q = ROTATIONS["12 x 16"]
    files = _write(tmp_path, q, DraftSpec(hidden=192, own_head=False), None)
    stored = load_file(files["target"] / "model.safetensors")
    settings = {"original_model": str(files["original"])}
    x = torch.randn(20, 192)
    with (
        loaded_draft(files["target"], files["draft"], settings=settings) as draft,
        torch.inference_mode(),
    ):
        share_as_the_host_does(draft, target_modules(*(stored[n].float() for n in _TARGET_TABLES)))
        tokens = draft.logits_processor.get_top_tokens(draft.lm_head, x)
        expected = draft.compute_logits(x).argmax(-1)
    assert torch.equal(tokens, expected)
    agreement = (tokens == (x @ embedding(VOCABULARY, 192, seed=4).T).argmax(-1)).float().mean()
    assert agreement > 0.9  # rounding of the stored tables may decide between near equals
