# SPDX-License-Identifier: Apache-2.0
"""Draft classes, the host's proposer and the host's own fold: one correction, in both orders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.ascend.drafts import vwn_draft
from tests.ascend.in_host.conftest import ORDER_VARIABLE
from tests.ascend.in_host.drafting import drafting
from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.integrations.architectures import is_eagle3
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

H, A = 192, 3
Q = real_rotation(H)
EPSILON = 1e-6

#: fp32 through one rotation, one norm and one product of 576 terms of order 1; a fold rounds fc
#: once more.
FP32_TOLERANCE = 2e-5

VWN = "virtual width"
SPECS = {
    "plain": DraftSpec(hidden=H),
    "norm before fc": DraftSpec(hidden=H, norm_before_fc=True),
    "norm per aux state": DraftSpec(hidden=H, fc_norm=True),
}


@pytest.fixture(autouse=True)
def _host_of_one_engine() -> Iterator[None]:
    """The host's fold replaces a class's loader for the life of the process, one engine's."""
    from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

    loader = Eagle3LlamaForCausalLM.load_weights
    yield
    Eagle3LlamaForCausalLM.load_weights = loader


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_target(write_target(tmp_path_factory.mktemp("target"), Q))


def _draft(folder: Path, variant: str) -> Path:
    table = embedding(96, H, seed=8)
    if variant == VWN:
        return vwn_draft(DraftSpec(hidden=H), folder)
    return SPECS[variant].write(folder, table)


def _original(draft: Path, h: torch.Tensor) -> torch.Tensor:
    """What the draft in this folder makes of original aux states, from its weights alone."""
    tensors = {
        name: value.float() for name, value in load_file(draft / "model.safetensors").items()
    }

    def normed(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * scale

    if "input_norm.weight" in tensors:
        h = normed(h, tensors["input_norm.weight"])
    if "fc_norm.0.weight" in tensors:
        chunks = h.chunk(A, -1)
        h = torch.cat([normed(x, tensors[f"fc_norm.{i}.weight"]) for i, x in enumerate(chunks)], -1)
    return h @ tensors["fc.weight"].T


@pytest.fixture
def h() -> torch.Tensor:
    return torch.randn(5, A * H, generator=torch.Generator().manual_seed(5))


def _rotated(h: torch.Tensor) -> torch.Tensor:
    return (h.reshape(-1, A, H) @ Q).reshape(-1, A * H)


def test_plugins_were_loaded_in_the_wanted_order(plugins: list[str]) -> None:
    """Guards the tests below: each order is one run of this file."""
    assert {"ascend_model", "eagle3_quarot"} <= set(plugins)
    wanted = 0 if os.environ[ORDER_VARIABLE] == "first" else len(plugins) - 1
    assert plugins.index("eagle3_quarot") == wanted


def test_every_eagle3_architecture_resolves_to_our_class() -> None:
    from vllm.model_executor.models import ModelRegistry, registry

    hosts = {
        name: (f"vllm.model_executor.models.{module}", cls)
        for name, (module, cls) in registry._SPECULATIVE_DECODING_MODELS.items()
        if is_eagle3(name, cls)
    }
    hosts["LlamaForCausalLMVwnEagle3"] = (
        "vllm_ascend.models.llama_eagle3_vwn",
        "Eagle3VwnLlamaForCausalLM",
    )
    assert len(hosts) > 8
    for name, location in hosts.items():
        resolved = ModelRegistry.models[name].load_model_cls()
        bases = {(base.__module__, base.__name__) for base in resolved.__mro__}
        assert issubclass(resolved, QuaRotDraftMixin) and location in bases, name
        assert resolved.__mro__.count(QuaRotDraftMixin) == 1


@pytest.mark.parametrize("mode", ["runtime", "fold"])
@pytest.mark.parametrize("variant", [*SPECS, VWN])
def test_rotation_is_undone_once(
    tmp_path: Path, target: Path, h: torch.Tensor, variant: str, mode: str
) -> None:
    """vllm-project/vllm-ascend#6914: the host's fold is assigned after we have registered."""
    from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

    folder = _draft(tmp_path / "draft", variant)
    with drafting(target, folder, mode) as host:
        assert isinstance(host.draft, QuaRotDraftMixin)
        assert isinstance(host.draft, Eagle3LlamaForCausalLM)
        # It was assigned; this draft was loaded past it.
        assert Eagle3LlamaForCausalLM.load_weights.__qualname__.startswith("make_load_weights.")
        combined = host.combine(_rotated(h))
    assert torch.allclose(combined, _original(folder, h), atol=FP32_TOLERANCE)


@pytest.mark.parametrize("variant", SPECS)
def test_mode_off_leaves_the_hosts_fold_as_it_is(
    tmp_path: Path, target: Path, h: torch.Tensor, variant: str
) -> None:
    """Right for a plain draft; a norm's scale does not commute with Q, which the host ignores."""
    folder = _draft(tmp_path / "draft", variant)
    with drafting(target, folder, "off") as host:
        combined = host.combine(_rotated(h))
    exact = torch.allclose(combined, _original(folder, h), atol=FP32_TOLERANCE)
    assert exact == (variant == "plain")


def test_hosts_fold_ends_on_a_virtual_width_draft(tmp_path: Path, target: Path) -> None:
    """It matches ``pre_vwn_layer.fc.``, too, which has another width."""
    folder = _draft(tmp_path / "draft", VWN)
    with (
        pytest.raises(RuntimeError, match="shapes cannot be multiplied"),
        drafting(target, folder, "off"),
    ):
        pass


def test_proposer_takes_no_other_class(tmp_path: Path, target: Path, h: torch.Tensor) -> None:
    """Guards the tests above: the host's assertion is really met on the way."""
    folder = _draft(tmp_path / "draft", "plain")
    with drafting(target, folder, "runtime") as host:
        host.proposer.model = nn.Identity()
        with pytest.raises(AssertionError):
            host.combine(h)
