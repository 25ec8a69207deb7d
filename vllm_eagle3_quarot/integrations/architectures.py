# SPDX-License-Identifier: Apache-2.0
"""Which registered architectures are Eagle3 drafts, and how their classes are replaced.

A draft class is replaced by a subclass of *the class that the registry holds now*, so a host's own
draft class stays in effect underneath. The registry is told a lazy ``"module:class"`` name, as for
vLLM's own models: nothing is imported before a draft of that class is served.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("vllm.eagle3_quarot")

#: Module whose attributes are the replacing classes.
DRAFT_MODULE = "vllm_eagle3_quarot.integrations.draft_models"

#: Prefix of a replacing class: QuaRotEagle3LlamaForCausalLM is an Eagle3LlamaForCausalLM.
CLASS_PREFIX = "QuaRot"

#: Eagle3 draft classes of vLLM and vllm-ascend. Several architecture names share one class, and
#: releases add names, so architectures are recognised by their class.
EAGLE3_CLASSES = frozenset(
    {
        "Eagle3LlamaForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "Eagle3VwnLlamaForCausalLM",
    }
)

#: Replaced classes of this process: name of the replacing class to ("module", "class") underneath.
replaced_classes: dict[str, tuple[str, str]] = {
    "QuaRotEagle3LlamaForCausalLM": (
        "vllm.model_executor.models.llama_eagle3",
        "Eagle3LlamaForCausalLM",
    ),
    "QuaRotEagle3DeepseekV2ForCausalLM": (
        "vllm.model_executor.models.deepseek_eagle3",
        "Eagle3DeepseekV2ForCausalLM",
    ),
}


def wrap_eagle3_architectures() -> list[str]:
    """Replace every Eagle3 architecture in vLLM's registry; return their names."""
    from vllm.model_executor.models import ModelRegistry

    wrapped = []
    for architecture, registered in list(ModelRegistry.models.items()):
        location = _location(registered)
        if location is None or location[1] not in EAGLE3_CLASSES:
            continue
        name = _replacing_name(*location)
        replaced_classes[name] = location
        ModelRegistry.register_model(architecture, f"{DRAFT_MODULE}:{name}")
        wrapped.append(architecture)
    logger.debug("eagle3_quarot: registered for %s", ", ".join(wrapped) or "no architecture")
    return wrapped


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
