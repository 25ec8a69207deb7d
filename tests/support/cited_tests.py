# SPDX-License-Identifier: Apache-2.0
"""Tests that a document names as ``path::name``: found in the source, without importing it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CITED = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def cited(text: str) -> list[str]:
    """Every ``tests/...py::name`` in backquotes."""
    return CITED.findall(text)


def is_a_test(name: str) -> bool:
    """True when ``path::name`` is a test function of this repository."""
    path, _, function = name.partition("::")
    return function in _functions(ROOT / path)


@cache
def _functions(path: Path) -> frozenset[str]:
    if not path.is_file() or not path.name.startswith("test_"):
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
