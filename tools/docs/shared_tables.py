# SPDX-License-Identifier: Apache-2.0
"""Copies tables of numbers from the English pages into the Chinese ones.

``python -m tools.docs.shared_tables``. A table between ``<!-- shared: NAME -->`` and
``<!-- end -->`` has one source, the English page; its headings have to be words of the field or
symbols. The page of the other language holds the same two marks.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"

SHARED = re.compile(r"<!-- shared: (?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)


def pages() -> dict[Path, str]:
    """Chinese pages with shared tables, and their text with those of the English page in it."""
    return {
        DOCS / "zh" / english.name: filled(DOCS / "zh" / english.name, tables(english))
        for english in sorted((DOCS / "en").glob("*.md"))
        if tables(english)
    }


def tables(page: Path) -> dict[str, str]:
    """Shared tables of a page by name."""
    text = page.read_text(encoding="utf-8")
    return {found["name"]: found["body"] for found in SHARED.finditer(text)}


def filled(page: Path, bodies: dict[str, str]) -> str:
    """The text of a page with these tables in it.

    Raises:
        KeyError: the page has a mark that the English page does not have.
    """
    return SHARED.sub(
        lambda found: f"<!-- shared: {found['name']} -->\n{bodies[found['name']]}<!-- end -->",
        page.read_text(encoding="utf-8"),
    )


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
