# SPDX-License-Identifier: Apache-2.0
"""Which registered architectures are Eagle3 drafts, and how their classes are replaced.

A draft class is replaced by a subclass of *the class that the registry holds*, so a host's own
draft class stays in effect underneath. The registry is told a lazy ``"module:class"`` name, as for
vLLM's own models: nothing is imported before a draft of that class is served.

The order in which plugins register is not defined, and the last one wins. What is registered before
us is wrapped when we register; what comes later is wrapped when it comes, for which
``ModelRegistry.register_model`` is extended on the one registry object. That is the only place
where something of vLLM's is exchanged on every host.
"""

from __future__ import annotations

import functools
import logging

logger = logging.getLogger("vllm.eagle3_quarot")

#: Module whose attributes are the replacing classes.
DRAFT_MODULE = "vllm_eagle3_quarot.integrations.draft_models"

#: Prefix of a replacing class: QuaRotEagle3LlamaForCausalLM is an Eagle3LlamaForCausalLM.
CLASS_PREFIX = "QuaRot"

#: Eagle3 draft classes of vLLM and vllm-ascend. Several architecture names share one class.
EAGLE3_CLASSES = frozenset(
    {
        "Eagle3LlamaForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "Eagle3Qwen3ForCausalLM",
        "Eagle3VwnLlamaForCausalLM",
        "AscendEagle3LlamaForCausalLM",
    }
)

#: Replaced classes of this process: name of the replacing class to ("module", "class") underneath.
replaced_classes: dict[str, tuple[str, str]] = {
    f"{CLASS_PREFIX}{name}": (f"vllm.model_executor.models.{module}", name)
    for module, name in (
        ("llama_eagle3", "Eagle3LlamaForCausalLM"),
        ("deepseek_eagle3", "Eagle3DeepseekV2ForCausalLM"),
        ("qwen3_eagle3", "Eagle3Qwen3ForCausalLM"),
    )
}


def is_eagle3(architecture: str, class_name: str) -> bool:
    """True for an Eagle3 draft.

    By its class, or by its name: vLLM gives every draft of this method a name that begins or ends
    with "Eagle3" (``vllm/transformers_utils/configs/eagle.py``), whatever class a host puts there.
    """
    named = architecture.startswith("Eagle3") or architecture.endswith("Eagle3")
    return named or class_name in EAGLE3_CLASSES


def wrap_eagle3_architectures() -> list[str]:
    """Replace every Eagle3 architecture in vLLM's registry; return their names."""
    from vllm.model_executor.models import ModelRegistry

    wrapped = [name for name in list(ModelRegistry.models) if _wrap(name)]
    logger.debug("eagle3_quarot: registered for %s", ", ".join(wrapped) or "no architecture")
    return wrapped


def wrap_later_registrations() -> None:
    """Wrap also what other plugins register after us; idempotent."""
    from vllm.model_executor.models import ModelRegistry

    stock = ModelRegistry.register_model
    if getattr(stock, "wraps_eagle3", False):
        return

    @functools.wraps(stock)
    def register_model(model_arch: str, model_cls: object) -> None:
        stock(model_arch, model_cls)
        if _wrap(model_arch):
            logger.debug("eagle3_quarot: registered for %s, over %s", model_arch, model_cls)

    register_model.wraps_eagle3 = True  # type: ignore[attr-defined]
    ModelRegistry.register_model = register_model


def _wrap(architecture: str) -> bool:
    from vllm.model_executor.models import ModelRegistry

    location = _location(ModelRegistry.models[architecture])
    if location is None or location[0] == DRAFT_MODULE or not is_eagle3(architecture, location[1]):
        return False
    name = _replacing_name(*location)
    replaced_classes[name] = location
    ModelRegistry.register_model(architecture, f"{DRAFT_MODULE}:{name}")
    return True


def _replacing_name(module: str, name: str) -> str:
    """Name of the replacing class; a host may use vLLM's class name for a class of its own."""
    own = CLASS_PREFIX + name
    return own if module.startswith("vllm.") else f"{own}_over_{module.replace('.', '_')}"


def _location(registered: object) -> tuple[str, str] | None:
    """Module and class name of a registry entry, lazy or not."""
    module, name = getattr(registered, "module_name", None), getattr(registered, "class_name", None)
    if isinstance(module, str) and isinstance(name, str):
        return module, name
    cls = getattr(registered, "model_cls", None)
    return (cls.__module__, cls.__qualname__) if isinstance(cls, type) else None
