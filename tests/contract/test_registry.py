# SPDX-License-Identifier: Apache-2.0
"""What we rely on in the installed vLLM's model registry, and what we make of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.deepseek_eagle3 import Eagle3DeepseekV2ForCausalLM
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

from tests.support.registry import stock_registry
from vllm_eagle3_quarot.draft.aux_states import default_layers
from vllm_eagle3_quarot.integrations import architectures
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

#: Every Eagle3 draft architecture of vLLM 0.23.0 and the class behind it.
EAGLE3_ARCHITECTURES = {
    "PEagleDraftModel": Eagle3LlamaForCausalLM,
    "PeagleLlamaForCausalLM": Eagle3LlamaForCausalLM,
    "Eagle3LlamaForCausalLM": Eagle3LlamaForCausalLM,
    "Eagle3MiniMaxM2ForCausalLM": Eagle3LlamaForCausalLM,
    "LlamaForCausalLMEagle3": Eagle3LlamaForCausalLM,
    "Eagle3Qwen2_5vlForCausalLM": Eagle3LlamaForCausalLM,
    "Eagle3Qwen3vlForCausalLM": Eagle3LlamaForCausalLM,
    "Eagle3DeepseekV2ForCausalLM": Eagle3DeepseekV2ForCausalLM,
    "Eagle3DeepseekV3ForCausalLM": Eagle3DeepseekV2ForCausalLM,
}

LAST_STATE = "Eagle 1 or 2: takes the target's last hidden state and no aux states"

#: Every other architecture of vLLM 0.23.0 that might be taken for one, and why it is none.
NO_EAGLE3_DRAFTS = {
    "EagleCohereForCausalLM": LAST_STATE,
    "EagleLlamaForCausalLM": LAST_STATE,
    "EagleLlama4ForCausalLM": LAST_STATE,
    "EagleMiniCPMForCausalLM": LAST_STATE,
    "EagleMistralForCausalLM": LAST_STATE,
    "EagleMistralLarge3ForCausalLM": LAST_STATE,
    "EagleDeepSeekMTPModel": LAST_STATE,
    "DFlashDraftModel": "another method (dflash), although it takes aux states as well",
    "Eagle2_5_VLForConditionalGeneration": "a vision-language target called Eagle",
}


@pytest.fixture(autouse=True)
def registry() -> Iterator[Any]:
    with stock_registry() as registry:
        yield registry


def test_every_eagle3_architecture_is_wrapped_and_no_other() -> None:
    before = dict(ModelRegistry.models)
    wrapped = architectures.wrap_eagle3_architectures()
    assert sorted(wrapped) == sorted(EAGLE3_ARCHITECTURES)
    for name, entry in ModelRegistry.models.items():
        assert (entry is before[name]) == (name not in wrapped)


@pytest.mark.variants(1, 12)
def test_a_new_architecture_is_noticed() -> None:
    """When vLLM's registry gains one: put it into one of the two tables above."""
    from vllm.model_executor.models import registry as registered

    similar = {
        name
        for name, location in registered._VLLM_MODELS.items()
        if any(word in part.lower() for part in (name, *location) for word in ("eagle", "dflash"))
    }
    assert similar == set(EAGLE3_ARCHITECTURES) | set(NO_EAGLE3_DRAFTS)
    for name, cls in EAGLE3_ARCHITECTURES.items():
        module, class_name = registered._VLLM_MODELS[name][:2]
        assert (cls.__module__.rsplit(".", 1)[1], cls.__name__) == (module, class_name)


@pytest.mark.variants(1, 12)
@pytest.mark.parametrize("name", EAGLE3_ARCHITECTURES)
def test_architecture_resolves_to_a_subclass_of_the_hosts_class(name: str) -> None:
    architectures.wrap_eagle3_architectures()
    resolved = ModelRegistry.models[name].load_model_cls()
    assert issubclass(resolved, QuaRotDraftMixin)
    assert issubclass(resolved, EAGLE3_ARCHITECTURES[name])
    assert resolved.__mro__[1] is QuaRotDraftMixin
    # vLLM and its workers find the class again by its name.
    assert getattr(importlib.import_module(resolved.__module__), resolved.__name__) is resolved


def test_wrapping_twice_changes_nothing() -> None:
    architectures.wrap_eagle3_architectures()
    once = {n: ModelRegistry.models[n].load_model_cls() for n in EAGLE3_ARCHITECTURES}
    assert architectures.wrap_eagle3_architectures() == []
    assert once == {n: ModelRegistry.models[n].load_model_cls() for n in EAGLE3_ARCHITECTURES}


@pytest.fixture
def host_class(monkeypatch: pytest.MonkeyPatch) -> type:
    """A draft class of a host's own, under a name that nobody knows."""
    host = type("HostsOwnDraft", (Eagle3LlamaForCausalLM,), {"__module__": "host_models"})
    module = ModuleType("host_models")
    module.HostsOwnDraft = host  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "host_models", module)
    return host


@pytest.mark.parametrize("order", ["host first", "we first", "both orders"])
@pytest.mark.parametrize("lazy", [True, False])
def test_a_class_of_the_host_stays_underneath_ours(
    host_class: type, order: str, lazy: bool
) -> None:
    """vllm-project/vllm-ascend#10896: the order of plugins is not defined, the last one wins."""

    def host_registers() -> None:
        location = "host_models:HostsOwnDraft" if lazy else host_class
        ModelRegistry.register_model("Eagle3LlamaForCausalLM", location)

    if order != "we first":
        host_registers()
    architectures.wrap_eagle3_architectures()
    architectures.wrap_later_registrations()
    if order != "host first":
        host_registers()
    resolved = ModelRegistry.models["Eagle3LlamaForCausalLM"].load_model_cls()
    assert issubclass(resolved, QuaRotDraftMixin) and issubclass(resolved, host_class)
    assert resolved.__mro__.count(QuaRotDraftMixin) == 1
    others = ModelRegistry.models["LlamaForCausalLMEagle3"].load_model_cls()
    assert issubclass(others, QuaRotDraftMixin) and not issubclass(others, host_class)


def test_later_registrations_of_targets_are_left_alone() -> None:
    architectures.wrap_later_registrations()
    extended = ModelRegistry.register_model
    architectures.wrap_later_registrations()
    assert ModelRegistry.register_model is extended
    ModelRegistry.register_model("SomebodysForCausalLM", "somebody.models:SomebodysForCausalLM")
    assert ModelRegistry.models["SomebodysForCausalLM"].module_name == "somebody.models"


@pytest.mark.parametrize("cls", [Eagle3LlamaForCausalLM, Eagle3DeepseekV2ForCausalLM])
def test_methods_that_we_extend_have_the_expected_parameters(cls: type) -> None:
    expected = {
        "__init__": ["self", "vllm_config", "prefix"],
        "combine_hidden_states": ["self", "hidden_states"],
        "load_weights": ["self", "weights"],
    }
    for method, parameters in expected.items():
        assert list(inspect.signature(getattr(cls, method)).parameters) == parameters
    assert cls.has_own_embed_tokens is False
    assert cls.has_own_lm_head is False


@pytest.mark.parametrize("depth", [8, 36, 61])
def test_default_aux_layers_are_those_that_we_report(depth: int) -> None:
    from types import SimpleNamespace

    from vllm.model_executor.models.interfaces import SupportsEagle3

    target = SimpleNamespace(model=SimpleNamespace(layers=[None] * depth))
    taken = SupportsEagle3.get_eagle3_default_aux_hidden_state_layers(target)
    assert default_layers(depth) == taken
