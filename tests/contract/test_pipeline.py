# SPDX-License-Identifier: Apache-2.0
"""A draft on a later pipeline stage: where the host shares no table, its own one is filled.

vLLM 0.23.0 refuses Eagle3 drafts in a pipeline, so the loader's level is as far as a test reaches.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.v1.spec_decode import llm_base_proposer

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import real_rotation
from tests.support.sharing import share_as_the_host_does, target_modules
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.copied_embedding import CopiedEmbedding
from vllm_eagle3_quarot.integrations.copied_embedding import fill_embedding
from vllm_eagle3_quarot.rotation import Rotation

Q = real_rotation(192)

#: The rotated table is stored in bf16: entries of order 1, each off by up to 2^-9 of itself.
TABLE_TOLERANCE = 0.02


@pytest.fixture
def last_of_two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host's sharing code asks; there is one process."""
    monkeypatch.setattr(llm_base_proposer, "get_pp_group", lambda: SimpleNamespace(world_size=2))


@pytest.mark.usefixtures("last_of_two_stages")
@pytest.mark.parametrize("own_table", [False, True])
def test_draft_gets_the_original_rows_and_shares_the_head(tmp_path: Path, own_table: bool) -> None:
    target = complete_target(write_target(tmp_path / "target", Q))
    original = write_target(tmp_path / "original", None, hidden=192)
    table = embedding(96, 192)
    spec = DraftSpec(hidden=192, own_embedding=own_table, own_head=False)
    draft = spec.write(tmp_path / "draft", table if own_table else None)
    settings = {"original_model": str(original)}
    stored = load_file(target / "model.safetensors")
    ids, x = torch.arange(96), torch.randn(5, 192)
    with (
        loaded_draft(target, draft, settings=settings, pipeline_stages=2) as loaded,
        torch.inference_mode(),
    ):
        modules = target_modules(
            stored["model.embed_tokens.weight"].float(), stored["lm_head.weight"].float()
        )
        share_as_the_host_does(loaded, modules)
        assert loaded.model.embed_tokens is not modules.model.embed_tokens
        assert loaded.lm_head is modules.lm_head
        rows, logits = loaded.embed_input_ids(ids), loaded.compute_logits(x)
    assert torch.allclose(rows, table, atol=TABLE_TOLERANCE)
    head = embedding(96, 192, seed=4)
    assert torch.allclose(logits, x @ head.T, atol=TABLE_TOLERANCE * 192**0.5)


@pytest.mark.usefixtures("last_of_two_stages")
def test_draft_with_a_table_of_its_own_keeps_it(tmp_path: Path) -> None:
    target = complete_target(write_target(tmp_path / "target", Q))
    table = embedding(96, 192) + 0.3 * embedding(96, 192, seed=8)
    draft = DraftSpec(hidden=192).write(tmp_path / "draft", table)
    with loaded_draft(target, draft, pipeline_stages=2) as loaded, torch.inference_mode():
        rows = loaded.embed_input_ids(torch.arange(96))
    assert torch.equal(rows, table)


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_fills_its_part_of_a_split_table(tmp_path: Path, rank: int) -> None:
    """96 ids are padded to 128 and split in two: 64 and 32, the rest of the second is zeros."""
    target = TargetFacts.from_folder(write_target(tmp_path / "target", Q))
    copied = CopiedEmbedding.of(target, Rotation.from_dense(Q, source="q"), 96)
    module = SimpleNamespace(
        weight=torch.nn.Parameter(torch.full((64, 192), torch.nan)),
        shard_indices=VocabParallelEmbedding._get_indices(128, 128, 96, 96, rank, 2),
    )
    fill_embedding(module, copied)
    expected = torch.zeros(128, 192)
    expected[:96] = embedding(96, 192)
    part = expected[64 * rank : 64 * (rank + 1)]
    assert torch.allclose(module.weight, part, atol=TABLE_TOLERANCE)
    assert torch.equal(module.weight == 0, part == 0)


def test_host_refuses_eagle3_drafts_in_a_pipeline(tmp_path: Path) -> None:
    """A host that stops refusing needs a test with real stages, and a look at the aux layers."""
    target = complete_target(write_target(tmp_path / "target", Q))
    draft = DraftSpec(hidden=192).write(tmp_path / "draft", embedding(96, 192))
    speculation = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3}
    with pytest.raises(NotImplementedError, match="`SupportsPP` interface"):
        EngineArgs(
            model=str(target),
            skip_tokenizer_init=True,
            pipeline_parallel_size=2,
            max_model_len=64,
            speculative_config=speculation,
        ).create_engine_config()
