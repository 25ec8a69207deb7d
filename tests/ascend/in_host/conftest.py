# SPDX-License-Identifier: Apache-2.0
"""A process of vllm-ascend as its worker is after start-up: plugins loaded, its patches applied.

These tests run in the environment with vllm-ascend; ``test_contract.py`` starts them there, once
for each order in which vLLM may find the plugins.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.device import start

#: Set by whoever starts these tests: ``first`` or ``last``.
ORDER_VARIABLE = "EAGLE3_QUAROT_PLUGIN_ORDER"


def pytest_configure() -> None:
    """Before anything imports torch_npu."""
    start.start(Path(os.environ[start.FOLDER_VARIABLE]))


@pytest.fixture(scope="session", autouse=True)
def plugins() -> list[str]:
    """General plugins in the wanted order, then the worker's module with all patches.

    Returns the names of the plugins in the order in which vLLM has loaded them.
    """
    from vllm.model_executor.models import registry
    from vllm.plugins import load_general_plugins

    stock = importlib.metadata.entry_points
    loaded: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        first = os.environ[ORDER_VARIABLE] == "first"
        patch.setattr(importlib.metadata, "entry_points", _with_us(stock, first, loaded))
        load_general_plugins()
    import vllm_ascend.worker.worker  # noqa: F401

    from tests.ascend.device.fp32 import accept_fp32

    accept_fp32()
    # vLLM looks at a class in a process of its own, half a minute each; the engines' tests do.
    registry._LazyRegisteredModel.inspect_model_cls = lambda lazy: (
        registry._ModelInfo.from_model_cls(lazy.load_model_cls())
    )
    return loaded


def _with_us(stock: Callable[..., Any], first: bool, loaded: list[str]) -> Callable[..., Any]:
    """``entry_points`` with ours at one end; Python gives them in the order of folders."""

    def entry_points(**selected: Any) -> Any:
        def at_the_end(point: importlib.metadata.EntryPoint) -> bool:
            return point.value.startswith("vllm_eagle3_quarot.") != first

        points = importlib.metadata.EntryPoints(sorted(stock(**selected), key=at_the_end))
        if selected.get("group") == "vllm.general_plugins":
            loaded[:] = [point.name for point in points]
        return points

    return entry_points
