# SPDX-License-Identifier: Apache-2.0
"""The documentation: the same pages in both languages; what is made from the code is current."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tools.docs import (
    acceptance_figure,
    basis_figure,
    benchmarks,
    configuration,
    grafana,
    shared_tables,
)

DOCS = Path(__file__).resolve().parents[3] / "docs"

HEADING = re.compile(r"^(#+) ", re.MULTILINE)
CODE = re.compile(r"^```\w*\n.*?^```", re.MULTILINE | re.DOTALL)
TABLE_ROW = re.compile(r"^\|", re.MULTILINE)


def pages(language: str) -> dict[str, Path]:
    folder = DOCS / language
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.md")}


def outline(page: Path) -> list[int]:
    """Depths of the headings, code left out."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return [len(marks) for marks in HEADING.findall(text)]


def table_rows(page: Path) -> int:
    """How many rows its tables have together."""
    return len(TABLE_ROW.findall(page.read_text(encoding="utf-8")))


def test_both_languages_have_the_same_pages() -> None:
    assert pages("en").keys() == pages("zh").keys()


@pytest.mark.parametrize("name", sorted(pages("en")))
def test_a_page_has_the_same_sections_and_commands_in_both(name: str) -> None:
    english, chinese = pages("en")[name], pages("zh")[name]
    assert outline(english) == outline(chinese)
    assert table_rows(english) == table_rows(chinese)
    commands = [
        [block for block in CODE.findall(page.read_text(encoding="utf-8")) if "```bash" in block]
        for page in (english, chinese)
    ]
    assert commands[0] == commands[1]


@pytest.mark.parametrize("path", list(configuration.pages()), ids=lambda path: path.parent.name)
def test_the_configuration_reference_is_current(path: Path) -> None:
    """Write it anew with ``python -m tools.docs.configuration``."""
    assert path.read_text(encoding="utf-8") == configuration.pages()[path]


@pytest.mark.parametrize(
    "drawing", [basis_figure, acceptance_figure], ids=lambda each: each.FIGURE.stem
)
def test_a_figure_is_current(drawing: ModuleType) -> None:
    """Draw it anew with ``python -m tools.docs.NAME_figure``."""
    assert drawing.FIGURE.read_text(encoding="utf-8") == drawing.figure()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_numbers_of_the_first_page_are_those_of_the_readme(language: str) -> None:
    page = (DOCS / language / "index.md").read_text(encoding="utf-8")
    for measured in acceptance_figure.table().values():
        if measured.acceptance:
            assert " | ".join(f"{rate:.3f}" for rate in measured.acceptance) in page


def test_the_dashboard_is_current() -> None:
    """Write it anew with ``python -m tools.docs.grafana``."""
    assert grafana.DASHBOARD.read_text(encoding="utf-8") == grafana.dashboard()


@pytest.mark.parametrize("page", list(shared_tables.pages()), ids=lambda page: page.stem)
def test_tables_of_numbers_are_those_of_the_english_page(page: Path) -> None:
    """Copy them with ``python -m tools.docs.shared_tables``."""
    english = shared_tables.tables(DOCS / "en" / page.name)
    assert shared_tables.tables(page) == english


def test_pages_stand_in_a_language_folder() -> None:
    assert not list(DOCS.glob("*.md"))


@pytest.mark.parametrize("page", list(benchmarks.pages()), ids=lambda page: page.parent.name)
def test_measured_tables_are_those_of_the_results(page: Path) -> None:
    """Write them anew with ``python -m tools.docs.benchmarks``."""
    assert page.read_text(encoding="utf-8") == benchmarks.pages()[page]
