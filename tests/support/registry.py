# SPDX-License-Identifier: Apache-2.0
"""vLLM's model registry as it was before any plugin, and back again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stock_registry() -> Iterator[Any]:
    """The registry with vLLM's own draft architectures; afterwards whatever there was before."""
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.registry import _VLLM_MODELS, _LazyRegisteredModel
    from vllm.plugins import load_general_plugins

    from vllm_eagle3_quarot.integrations import draft_models
    from vllm_eagle3_quarot.integrations.architectures import replaced_classes

    load_general_plugins()  # once per process: not again, on a registry that should be stock
    known = dict(replaced_classes)
    kept = dict(ModelRegistry.models)
    extension = vars(ModelRegistry).pop("register_model", None)
    for name, (module, cls) in _VLLM_MODELS.items():
        path = module if "." in module else f"vllm.model_executor.models.{module}"
        ModelRegistry.models[name] = _LazyRegisteredModel(path, cls)
    try:
        yield ModelRegistry
    finally:
        ModelRegistry.models.clear()
        ModelRegistry.models.update(kept)
        vars(ModelRegistry).pop("register_model", None)
        if extension is not None:
            ModelRegistry.register_model = extension
        # A class that a test put underneath one of ours is not that of the next test.
        for name in replaced_classes.keys() - known.keys():
            del replaced_classes[name]
            vars(draft_models).pop(name, None)
