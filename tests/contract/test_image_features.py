# SPDX-License-Identifier: Apache-2.0
"""What the draft's look-up makes of the positions of an image in a rotated target's prompt.

A rotated vision tower hands out features ``v Q``. vLLM's own Eagle3 classes are given them and look
up the placeholder's row instead; a host's class may put them in, and then wants ``v``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import dense_rotation, real_rotation
from tests.support.sharing import share_as_the_host_does, target_modules
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

ROTATIONS = {
    "12 x 16": real_rotation(192),
    "blocks of 32": real_rotation(96, 32),
    "dense": dense_rotation(80),
}

VOCABULARY = 96

#: Stored in bf16: an entry is off by up to 2^-9 of the row's typical entry.
TABLE_TOLERANCE = 0.03

#: fp32 through one rotation on values of order 1.
FP32_TOLERANCE = 1e-5

#: A prompt of seven tokens, three of which are an image's placeholder.
IDS = torch.tensor([4, 90, 90, 90, 7, 8, 9])
IS_IMAGE = IDS == 90


def _putting_features_in(draft: torch.nn.Module) -> None:
    """Make ``draft`` one of a host whose class puts the features where the placeholders are."""
    from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

    class Host(Eagle3LlamaForCausalLM):  # type: ignore[misc]
        def embed_input_ids(
            self,
            input_ids: torch.Tensor,
            multimodal_embeddings: Any = None,
            is_multimodal: torch.Tensor | None = None,
        ) -> torch.Tensor:
            rows = super().embed_input_ids(input_ids)
            if multimodal_embeddings is not None:
                features = torch.cat(list(multimodal_embeddings))
                rows = rows.clone()
                # Behind the first H channels are those of deeper layers, for the target alone.
                rows[is_multimodal] = features[:, : rows.shape[1]]
            return rows

    draft.__class__ = type("Draft", (QuaRotDraftMixin, Host), {})


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize(
    ("shared", "mode"),
    [(True, "runtime"), (False, "runtime"), (False, "fold")],
    ids=["shared table", "own table", "own table, fold"],
)
def test_image_positions_come_out_of_the_rotated_basis(
    tmp_path: Path, name: str, shared: bool, mode: str
) -> None:
    """vllm-project/vllm#29594: text and image rows of one prompt, in one basis."""
    q = ROTATIONS[name]
    size = q.shape[0]
    table = embedding(VOCABULARY, size) if shared else embedding(VOCABULARY, size, seed=8)
    target_folder = complete_target(write_target(tmp_path / "target", q))
    spec = DraftSpec(hidden=size, own_embedding=not shared)
    draft_folder = spec.write(tmp_path / "draft", table)
    stored = load_file(target_folder / "model.safetensors")
    features = torch.randn(3, 3 * size)
    rotated = torch.cat([part @ q for part in features.split(size, dim=1)], dim=1)
    given = [rotated[:1].clone(), rotated[1:].clone()]
    settings = {"mode": mode}
    with (
        loaded_draft(target_folder, draft_folder, settings=settings) as draft,
        torch.inference_mode(),
    ):
        tables = ("model.embed_tokens.weight", "lm_head.weight")
        share_as_the_host_does(draft, target_modules(*(stored[n].float() for n in tables)))
        options = {"multimodal_embeddings": given, "is_multimodal": IS_IMAGE}
        by_vllm = draft.embed_input_ids(IDS, **options)
        text_only = draft.embed_input_ids(IDS, multimodal_embeddings=None)
        _putting_features_in(draft)
        by_host = draft.embed_input_ids(IDS, **options)
    assert torch.allclose(by_vllm, table[IDS], atol=TABLE_TOLERANCE)
    assert torch.equal(by_vllm, text_only)
    assert torch.equal(by_host[~IS_IMAGE], by_vllm[~IS_IMAGE])
    assert torch.allclose(by_host[IS_IMAGE], features[:, :size], atol=FP32_TOLERANCE)
    # The target goes on with the same features, so they must not change.
    assert torch.equal(torch.cat(given), rotated)
