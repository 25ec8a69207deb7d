# SPDX-License-Identifier: Apache-2.0
"""A draft that was published with a token table that nobody trained, in the host's hands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import real_rotation
from tests.support.sharing import share_as_the_host_does, target_modules

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

VOCABULARY, SIZE = 96, 192

#: Rows of order 1 that were stored in bf16 after a rotation.
ROW_TOLERANCE = 0.03


@pytest.mark.variants(2)
@pytest.mark.parametrize("strict", [True, False])
def test_random_table_is_replaced_when_strict_and_kept_else(tmp_path: Path, strict: bool) -> None:
    """TorchSpec#38: a trainer exported an unused random table with the draft."""
    random = torch.randn(VOCABULARY, SIZE, generator=torch.Generator().manual_seed(5)) * 0.02
    folder = complete_target(write_target(tmp_path / "target", real_rotation(SIZE)))
    draft_folder = DraftSpec(hidden=SIZE).write(tmp_path / "draft", random)
    stored = load_file(folder / "model.safetensors")
    tables = [stored[n].float() for n in ("model.embed_tokens.weight", "lm_head.weight")]
    ids = torch.arange(0, VOCABULARY, 5)
    settings = {"strict": strict}
    with loaded_draft(folder, draft_folder, settings=settings) as draft, torch.inference_mode():
        target = target_modules(*tables)
        share_as_the_host_does(draft, target)
        rows = draft.embed_input_ids(ids)
        shared = draft.model.embed_tokens is target.model.embed_tokens
    assert shared == strict
    expected = embedding(VOCABULARY, SIZE) if strict else random
    assert torch.allclose(rows, expected[ids], atol=ROW_TOLERANCE if strict else 0)
