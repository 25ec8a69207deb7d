# SPDX-License-Identifier: Apache-2.0
"""vllm-ascend undoes the rotation by itself as well: whatever the order, it is undone once.

Reference is the draft as vLLM loads it without anybody's help, on the original states ``h``; the
draft under test gets ``h Q``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.model_executor.model_loader.utils import _MODEL_ARCH_BY_HASH

from tests.contract.wheels.folding_host import FoldingHost
from tests.contract.wheels.releases import selected
from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.registry import stock_registry
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.integrations.architectures import (
    wrap_eagle3_architectures,
    wrap_later_registrations,
)
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin
from vllm_eagle3_quarot.rotation import Rotation

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

#: Not a power of two: 12 x 16.
Q = real_rotation(192)

#: fp32 through one rotation and one product of 576 terms of order 1; the host's fold rounds fc once
#: more.
FP32_TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def registry() -> Iterator[Any]:
    with stock_registry() as registry:
        yield registry


@pytest.fixture(params=selected("vllm_ascend"), ids=str)
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FoldingHost:
    return FoldingHost(request.param, monkeypatch)


class Pair:
    def __init__(self, folder: Path, host: FoldingHost, **spec: Any) -> None:
        self.target = complete_target(write_target(folder / "target", Q))
        named = {"architectures": [host.architecture], **spec.pop("extra", {})}
        own = spec.get("own_embedding", True)
        self.draft = DraftSpec(hidden=192, extra=named, **spec).write(
            folder / "draft", embedding(96, 192, seed=8) if own else None
        )
        self.h = torch.randn(5, 3 * 192)
        self.rotated = (self.h.reshape(5, 3, 192) @ Q).reshape(5, -1)

    def combined(self, states: torch.Tensor, mode: str) -> tuple[Any, torch.Tensor]:
        # vLLM remembers the class of a folder; the registry has changed since.
        _MODEL_ARCH_BY_HASH.clear()
        settings = {"mode": mode}
        with (
            loaded_draft(self.target, self.draft, settings=settings) as draft,
            torch.inference_mode(),
        ):
            return draft, draft.combine_hidden_states(states.clone())


def _register_us() -> None:
    wrap_eagle3_architectures()
    wrap_later_registrations()


@pytest.fixture
def reference(tmp_path: Path, host: FoldingHost) -> tuple[Pair, torch.Tensor]:
    pair = Pair(tmp_path, host)
    draft, expected = pair.combined(pair.h, "off")
    assert not isinstance(draft, QuaRotDraftMixin)
    return pair, expected


@pytest.mark.parametrize("mode", ["runtime", "fold"])
@pytest.mark.parametrize("order", ["we register first", "the host acts first"])
@pytest.mark.parametrize("variant", ["plain", "norm_before_fc", "fc_norm"])
def test_rotation_is_undone_once(
    tmp_path: Path, host: FoldingHost, order: str, variant: str, mode: str
) -> None:
    """vllm-project/vllm-ascend#6914, #10896; with norms, the host's own fold is wrong."""
    pair = Pair(tmp_path, host, **({} if variant == "plain" else {variant: True}))
    _, expected = pair.combined(pair.h, "off")
    if order == "we register first":
        _register_us()
        host.switch_on(pair.target)
    else:
        host.switch_on(pair.target)
        _register_us()
    draft, actual = pair.combined(pair.rotated, mode)
    assert isinstance(draft, QuaRotDraftMixin)
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


def test_draft_that_was_aligned_offline_is_not_folded_again(
    tmp_path: Path, reference: tuple[Pair, torch.Tensor], host: FoldingHost
) -> None:
    """vllm-project/vllm-ascend#6914: a converted draft on a release that folds by itself."""
    pair, expected = reference
    aligned = tmp_path / "aligned"
    rotation = Rotation.from_checkpoint(pair.target)
    align(
        plan_alignment(DraftFacts(pair.draft), TargetFacts.from_folder(pair.target), rotation),
        aligned,
    )
    pair.draft = aligned
    _register_us()
    host.switch_on(pair.target)
    _, actual = pair.combined(pair.rotated, "runtime")
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


@pytest.mark.parametrize("order", ["we register first", "the host acts first", "without us"])
def test_mode_off_leaves_the_correction_to_the_host(
    host: FoldingHost, reference: tuple[Pair, torch.Tensor], order: str
) -> None:
    pair, expected = reference
    if order == "we register first":
        _register_us()
    host.switch_on(pair.target)
    if order == "the host acts first":
        _register_us()
    draft, actual = pair.combined(pair.rotated, "off")
    assert isinstance(draft, QuaRotDraftMixin) == (order != "without us")
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)
    assert getattr(draft, "is_quarot_used", True)


def test_host_makes_no_copy_of_a_table_that_we_share(tmp_path: Path, host: FoldingHost) -> None:
    """vllm-project/vllm-ascend#7038: its un-rotated copy and our look-up would add up."""
    pair = Pair(tmp_path, host, own_embedding=False)
    _register_us()
    host.switch_on(pair.target)
    shared, _ = pair.combined(pair.rotated, "runtime")
    assert not shared.has_own_embed_tokens
    copied, _ = pair.combined(pair.rotated, "off")
    assert copied.has_own_embed_tokens


def test_correction_that_nobody_knows_of_is_refused(
    reference: tuple[Pair, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future release, or another plugin, folds in a place that we do not know."""
    from vllm.model_executor.models import llama_eagle3

    load = llama_eagle3.LlamaModel.load_weights

    def folding(self: Any, weights: Any) -> Any:
        return load(self, ((n, -w if n.startswith("fc.") else w) for n, w in weights))

    pair, _ = reference
    _register_us()
    monkeypatch.setattr(llama_eagle3.LlamaModel, "load_weights", folding)
    with pytest.raises(UnsupportedPairError, match="changed while it was loaded"):
        pair.combined(pair.rotated, "runtime")
