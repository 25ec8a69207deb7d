# SPDX-License-Identifier: Apache-2.0
"""vLLM's MLA draft class on a rotated target, layer included, against the unrotated one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.mla import PromptAttention, write_mla_draft
from tests.support.rotations import real_rotation
from tests.support.sharing import share_as_the_host_does, target_modules
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZE, VOCABULARY = 192, 96
Q = real_rotation(SIZE)

#: Tables are compared as bf16 files keep them: rotated and unrotated ones differ by 2^-9 of an
#: entry, and so do states and logits of order 1 after a layer.
TABLE_TOLERANCE = 0.05

#: fp32 through one layer.
FP32_TOLERANCE = 1e-4

DRAFTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm per aux state": {"fc_norm": True},
    "neither embedding nor head": {"own_embedding": False, "own_head": False},
}


@pytest.fixture(autouse=True)
def _attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.model_executor.layers.mla.MLAAttention", PromptAttention)


def _outputs(
    target: Path, draft: Path, h: torch.Tensor, **settings: object
) -> tuple[type, torch.Tensor, torch.Tensor]:
    """Combined states and logits of a prompt of as many tokens as ``h`` has rows."""
    stored = load_file(target / "model.safetensors")
    tables = [stored[n].float() for n in ("model.embed_tokens.weight", "lm_head.weight")]
    count = h.shape[0]
    with loaded_draft(target, draft, settings=settings) as model, torch.inference_mode():
        share_as_the_host_does(model, target_modules(*tables))
        combined = model.combine_hidden_states(h.clone())
        ids, positions = torch.arange(count) * 7 % VOCABULARY, torch.arange(count)
        states, _ = model(ids, positions, combined)
        logits = model.compute_logits(states)
    assert logits is not None
    return type(model), combined, logits


@pytest.mark.variants(12)
@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize(
    ("mode", "architecture"),
    [("runtime", "Eagle3DeepseekV2ForCausalLM"), ("fold", "Eagle3DeepseekV3ForCausalLM")],
)
def test_logits_equal_those_on_the_unrotated_target(
    tmp_path: Path, name: str, architecture: str, mode: str
) -> None:
    spec = DraftSpec(hidden=SIZE, vocabulary=VOCABULARY, **DRAFTS[name])
    table = embedding(VOCABULARY, SIZE, seed=8) if spec.own_embedding else None
    draft = write_mla_draft(tmp_path / "draft", spec, architecture, table)
    original = complete_target(write_target(tmp_path / "original", None, hidden=SIZE))
    rotated = complete_target(write_target(tmp_path / "rotated", Q))
    h = torch.randn(9, 3 * SIZE)
    turned = (h.reshape(9, 3, SIZE) @ Q).reshape(h.shape)
    _, states, logits = _outputs(original, draft, h)
    cls, actual_states, actual_logits = _outputs(
        rotated, draft, turned, mode=mode, original_model=str(original)
    )
    assert issubclass(cls, QuaRotDraftMixin)
    assert torch.allclose(actual_states, states, atol=FP32_TOLERANCE)
    tolerance = FP32_TOLERANCE if spec.own_head else TABLE_TOLERANCE * SIZE**0.5
    assert torch.allclose(actual_logits, logits, atol=tolerance)
    # Guards the comparison: as they are, the rotated states combine to something else.
    with loaded_draft(rotated, draft, settings={"mode": "off"}) as model, torch.inference_mode():
        uncorrected = model.combine_hidden_states(turned)
    assert not torch.allclose(uncorrected, states, atol=0.1)


def test_cpu_platform_still_has_no_mla_backend() -> None:
    """The reason for the stand-in; when this fails, serve the draft in tests/engine instead."""
    from types import SimpleNamespace

    from vllm.platforms.cpu import CpuPlatform

    with pytest.raises(NotImplementedError, match="MLA is not supported on CPU"):
        CpuPlatform.get_attn_backend_cls(None, SimpleNamespace(use_mla=True, use_sparse=False))
