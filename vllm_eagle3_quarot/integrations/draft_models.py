# SPDX-License-Identifier: Apache-2.0
"""The classes that vLLM's registry is told: ``QuaRot<class of the host>``, made when asked for."""

from __future__ import annotations

import importlib
from typing import Any

from vllm_eagle3_quarot.integrations.architectures import replaced_classes
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin


def __getattr__(name: str) -> Any:
    """Build ``name`` over the class it replaces; Python asks here once per class."""
    if name not in replaced_classes:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module, host_class_name = replaced_classes[name]
    host_class = getattr(importlib.import_module(module), host_class_name)
    replacing = type(name, (QuaRotDraftMixin, host_class), {"__module__": __name__})
    globals()[name] = replacing
    return replacing
