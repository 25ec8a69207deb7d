# SPDX-License-Identifier: Apache-2.0
"""A reader searches the documentation for the line of the log that he has: it has to be there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

#: First cells of the tables of log lines, and the messages quoted in them; ``…`` is left out text.
FIRST_CELL = re.compile(r"^\| (?P<cell>.*?) \|", re.MULTILINE)
MESSAGE = re.compile(r"`(?P<text>[^`]*\w \w[^`]*)`")
LEFT_OUT = "…"


@cache
def strings_of_the_package() -> tuple[str, ...]:
    """Every string of the source, what is formatted in replaced by ``…``."""
    found = []
    for path in sorted((ROOT / "vllm_eagle3_quarot").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%\.?\d?\w", LEFT_OUT, node.value))
            elif isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else LEFT_OUT
                    for part in node.values
                ]
                found.append("".join(parts))
    return tuple(found)


def quoted(language: str) -> list[str]:
    page = (ROOT / "docs" / language / "troubleshooting.md").read_text(encoding="utf-8")
    cells = [row["cell"] for row in FIRST_CELL.finditer(page)]
    return [message["text"] for cell in cells for message in MESSAGE.finditer(cell)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_quoted_lines_are_what_the_package_says(language: str) -> None:
    messages = quoted(language)
    assert len(messages) > 10
    for message in messages:
        pieces = [
            piece.strip() for piece in message.removeprefix("eagle3_quarot: ").split(LEFT_OUT)
        ]
        for piece in filter(None, pieces):
            assert any(piece in string for string in strings_of_the_package()), piece
