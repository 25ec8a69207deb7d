# SPDX-License-Identifier: Apache-2.0
"""vllm-ascend's VWN draft: our class over a stand-in with its name and its module tree.

On a rotated target vllm-ascend 0.23.0 folds into every tensor whose name contains ``fc.``, also
into the one inside the layer, which has another width, and ends with an exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.model_executor.models import ModelRegistry, registry

from tests.support import vwn
from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import real_rotation
from tests.support.vwn import ARCHITECTURE, Eagle3VwnLlamaForCausalLM, write_vwn_draft
from vllm_eagle3_quarot.integrations import architectures
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Q = real_rotation(192)

#: fp32 through one rotation, one norm and one product of 576 terms, on values of order 1.
FP32_TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def _host_with_the_class(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host registers the class by its lazy name, then our plugin looks at the registry."""
    kept = dict(ModelRegistry.models), dict(architectures.replaced_classes)
    ModelRegistry.register_model(ARCHITECTURE, f"{vwn.__name__}:Eagle3VwnLlamaForCausalLM")
    architectures.wrap_eagle3_architectures()

    def inspect_here(self: Any) -> Any:
        return registry._ModelInfo.from_model_cls(self.load_model_cls())

    # vLLM inspects a class in a process of its own, in which this host would not exist.
    monkeypatch.setattr(registry._LazyRegisteredModel, "inspect_model_cls", inspect_here)
    yield
    for mapping, before in zip(
        (ModelRegistry.models, architectures.replaced_classes), kept, strict=True
    ):
        mapping.clear()
        mapping.update(before)


@pytest.mark.variants(12)
def test_class_is_wrapped_by_its_name() -> None:
    resolved = ModelRegistry.models[ARCHITECTURE].load_model_cls()
    assert issubclass(resolved, QuaRotDraftMixin)
    # vllm-ascend's proposer asserts an instance of its own class.
    assert issubclass(resolved, Eagle3VwnLlamaForCausalLM)


@pytest.mark.variants(12)
@pytest.mark.parametrize("mode", ["runtime", "fold"])
@pytest.mark.parametrize("norm_before_fc", [False, True])
def test_outer_projection_is_corrected_and_the_inner_one_is_not(
    tmp_path: Path, mode: str, norm_before_fc: bool
) -> None:
    target = complete_target(write_target(tmp_path / "target", Q))
    spec = DraftSpec(hidden=192, norm_before_fc=norm_before_fc)
    draft = write_vwn_draft(tmp_path / "draft", spec, embedding(96, 192))
    h = torch.randn(7, 3 * 192)
    rotated = (h.reshape(7, 3, 192) @ Q).reshape(h.shape)
    embeds, states = torch.randn(2, 7, 192)
    results = []
    for settings, inputs in (({"mode": "off"}, h), ({"mode": mode}, rotated)):
        with loaded_draft(target, draft, settings=settings) as model, torch.inference_mode():
            combined = model.combine_hidden_states(inputs.clone())
            results.append((combined, model.model.layers[0].pre_vwn_layer(embeds, states)))
    (expected, inner), (actual, actual_inner) = results
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)
    assert torch.equal(actual_inner, inner)


@pytest.mark.variants(9, 12)
@pytest.mark.parametrize("mode", ["runtime", "fold"])
def test_mask_state_keeps_its_combination(tmp_path: Path, mode: str) -> None:
    target = complete_target(write_target(tmp_path / "target", Q))
    spec = DraftSpec(hidden=192, mask_hidden=True, extra={"ptd_token_id": 5})
    draft = write_vwn_draft(tmp_path / "draft", spec, embedding(96, 192))
    combined = []
    for settings in ({"mode": "off"}, {"mode": mode}):
        with (
            loaded_draft(target, draft, settings=settings, parallel_drafting=True) as model,
            torch.inference_mode(),
        ):
            combined.append(model.combine_hidden_states(model.mask_hidden.view(-1)))
    assert torch.allclose(*combined, atol=FP32_TOLERANCE)
