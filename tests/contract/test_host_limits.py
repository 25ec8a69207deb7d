# SPDX-License-Identifier: Apache-2.0
"""Hosts that run a draft past the places where it is corrected: refused at start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.errors import UnsupportedPairError

Q = hadamard_rotation(64)
POST_NORM: dict[str, Any] = {"eagle_config": {"use_aux_hidden_state": False}}


def _pair(tmp_path: Path, spec: DraftSpec) -> tuple[Path, Path, dict[str, Any]]:
    target = complete_target(write_target(tmp_path / "target", Q))
    original = write_target(tmp_path / "original", None, hidden=64)
    draft = spec.write(tmp_path / "draft", embedding(96, 64))
    return target, draft, {"original_model": str(original)}


@pytest.fixture
def second_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration of model runner V2, without the check that Triton could run its kernels."""
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    monkeypatch.setattr(VllmConfig, "_validate_v2_model_runner", lambda _: None)


@pytest.mark.usefixtures("second_runner")
def test_post_norm_draft_on_the_second_runner(tmp_path: Path) -> None:
    """It calls ``combine_hidden_states`` with aux states only, not with the post-norm state."""
    target, draft, settings = _pair(tmp_path, DraftSpec(extra=POST_NORM))
    with (
        pytest.raises(UnsupportedPairError, match="VLLM_USE_V2_MODEL_RUNNER=0"),
        loaded_draft(target, draft, settings=settings),
    ):
        pass
    lenient = {**settings, "strict": False}
    h = torch.randn(3, 64)
    with loaded_draft(target, draft, settings=lenient) as loaded, torch.inference_mode():
        assert torch.equal(loaded.combine_hidden_states(h), h)


@pytest.mark.usefixtures("second_runner")
def test_draft_of_aux_states_on_the_second_runner_is_corrected(tmp_path: Path) -> None:
    spec = DraftSpec()
    target, draft, settings = _pair(tmp_path, spec)
    h = torch.randn(3, 3, 64)
    with loaded_draft(target, draft, settings=settings) as loaded, torch.inference_mode():
        combined = loaded.combine_hidden_states((h @ Q).flatten(1))
    expected = h.flatten(1) @ spec.tensors()["fc.weight"].T
    assert torch.allclose(combined, expected, atol=2e-5)


def test_tokens_taken_from_a_head_of_its_own_without_logits(tmp_path: Path) -> None:
    target, draft, settings = _pair(tmp_path, DraftSpec())
    speculation = {"use_local_argmax_reduction": True}
    with (
        loaded_draft(target, draft, settings=settings, speculation=speculation) as loaded,
        torch.inference_mode(),
    ):
        assert loaded.compute_logits(torch.randn(2, 64)).shape == (2, 96)
