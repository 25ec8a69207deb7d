# SPDX-License-Identifier: Apache-2.0
"""Two sets of tests, of which an interpreter can run one.

``on_npu/`` needs torch_npu; ``test_npu_runtime.py`` starts those tests in the interpreter that has
it. An installed torch_npu changes ``import torch``, so the two never share an environment.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

collect_ignore = [
    "test_npu_runtime.py" if importlib.util.find_spec("torch_npu") is not None else "on_npu"
]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "npu_runtime: needs an environment with torch_npu (`make test-npu` makes one)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.npu_runtime)
