# SPDX-License-Identifier: Apache-2.0
"""Model runner V2's own loading of a draft: the class and the sharing that V1 gives it.

The whole runner needs Triton, see tests/engine/test_second_runner.py; this part does not.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from vllm.v1.worker.gpu.spec_decode.autoregressive.speculator import AutoRegressiveSpeculator
from vllm.v1.worker.gpu.spec_decode.eagle.utils import load_eagle_model

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, configured_engine
from tests.support.rotations import real_rotation
from tests.support.sharing import target_modules
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

Q = real_rotation(192)

#: Tables are stored in bf16: every entry is off by up to 2^-9 of itself, a rotated-back entry by
#: that of the row's typical entry; rows are of order 1 and logits sums of H products.
TABLE_TOLERANCE = 0.03


@pytest.mark.parametrize("own_head", [False, True])
@pytest.mark.parametrize("own_table", [False, True])
def test_tables_are_shared_and_corrected(tmp_path: Path, own_table: bool, own_head: bool) -> None:
    target = complete_target(write_target(tmp_path / "target", Q))
    original = write_target(tmp_path / "original", None, hidden=192)
    spec = DraftSpec(hidden=192, own_embedding=own_table, own_head=own_head)
    table = 0.5 * embedding(96, 192) + embedding(96, 192, seed=8)
    draft = spec.write(tmp_path / "draft", table)
    stored = load_file(target / "model.safetensors")
    settings = {"original_model": str(original)}
    ids, x = torch.randint(0, 96, (11,)), torch.randn(5, 192)
    with configured_engine(target, draft, settings=settings) as config, torch.inference_mode():
        modules = target_modules(
            stored["model.embed_tokens.weight"].float(), stored["lm_head.weight"].float()
        )
        loaded = load_eagle_model(modules, config)
        rows, logits = loaded.embed_input_ids(ids), loaded.compute_logits(x)
    assert isinstance(loaded, QuaRotDraftMixin)
    assert (loaded.model.embed_tokens is modules.model.embed_tokens) is not own_table
    assert (loaded.lm_head is modules.lm_head) is not own_head
    expected = table if own_table else embedding(96, 192)
    assert torch.allclose(rows, expected[ids], atol=TABLE_TOLERANCE)
    head = spec.tensors()["lm_head.weight"] if own_head else embedding(96, 192, seed=4)
    assert torch.allclose(logits, x @ head.T, atol=TABLE_TOLERANCE * 192**0.5)


def test_proposer_asks_the_draft_for_what_we_correct() -> None:
    """Read in its source, for environments in which it cannot run."""
    assert "self.model.combine_hidden_states(" in inspect.getsource(
        AutoRegressiveSpeculator.propose
    )
    assert "self.model.compute_logits(" in inspect.getsource(AutoRegressiveSpeculator.sample_draft)
