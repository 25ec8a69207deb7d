# SPDX-License-Identifier: Apache-2.0
"""A host that folds Q into the draft by itself, after we registered: corrected once."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.integrations import original_loaders

Q = hadamard_rotation(64)

#: fp32 through one rotation and one product of 192 terms of order 1.
FP32_TOLERANCE = 2e-5


@pytest.fixture
def folding_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does what vllm-ascend 0.23.0 does: assigns a folding loader to vLLM's class, late."""
    stock = Eagle3LlamaForCausalLM.load_weights

    def load_weights(self: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        def folded() -> Iterable[tuple[str, torch.Tensor]]:
            for name, tensor in weights:
                if name == "fc.weight":
                    tensor = (tensor.reshape(tensor.shape[0], -1, 64) @ Q).reshape(tensor.shape)
                yield name, tensor

        return stock(self, folded())

    # A process registers plugins while the class still is vLLM's; the module tells the host.
    module = ModuleType("vllm_ascend")
    module.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("vllm_ascend", None)
    monkeypatch.setitem(sys.modules, "vllm_ascend", module)
    monkeypatch.setattr(original_loaders, "_kept", {})
    original_loaders.keep_original_loaders()
    monkeypatch.setattr(Eagle3LlamaForCausalLM, "load_weights", load_weights)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    target = complete_target(write_target(tmp_path / "target", Q))
    return target, DraftSpec().write(tmp_path / "draft", embedding(96, 64))


def _combined(pair: tuple[Path, Path], h: torch.Tensor, mode: str) -> torch.Tensor:
    with loaded_draft(*pair, settings={"mode": mode}) as draft, torch.inference_mode():
        combined: torch.Tensor = draft.combine_hidden_states(h.clone())
    return combined


@pytest.mark.parametrize("mode", ["runtime", "fold"])
def test_rotation_is_undone_once(
    pair: tuple[Path, Path], request: pytest.FixtureRequest, mode: str
) -> None:
    """vllm-project/vllm-ascend#6914: the host folds, and so do we; only one may act."""
    h = torch.randn(5, 3 * 64)
    rotated = (h.reshape(5, 3, 64) @ Q).reshape(5, -1)
    expected = _combined(pair, h, "off")
    request.getfixturevalue("folding_host")
    assert torch.allclose(_combined(pair, rotated, mode), expected, atol=FP32_TOLERANCE)


def test_mode_off_leaves_the_fold_to_the_host(
    pair: tuple[Path, Path], request: pytest.FixtureRequest
) -> None:
    h = torch.randn(5, 3 * 64)
    rotated = (h.reshape(5, 3, 64) @ Q).reshape(5, -1)
    expected = _combined(pair, h, "off")
    request.getfixturevalue("folding_host")
    assert torch.allclose(_combined(pair, rotated, "off"), expected, atol=FP32_TOLERANCE)


def test_without_such_a_host_nothing_is_imported_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original_loaders, "_kept", {})
    original_loaders.keep_original_loaders()
    assert original_loaders.original_loader(Eagle3LlamaForCausalLM) is None
