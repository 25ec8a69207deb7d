# SPDX-License-Identifier: Apache-2.0
"""The support matrix: its marks stand on tests that exist, and its pages are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cited_tests import is_a_test
from tools.docs import support_matrix
from tools.docs.support_rows import ASCEND, NO, SECTIONS, SERVED, UNTESTED, Row

ROWS = [row for section in SECTIONS for row in section.rows]


@pytest.mark.parametrize("path", list(support_matrix.pages()), ids=lambda path: path.parent.name)
def test_the_pages_are_current(path: Path) -> None:
    """Write them anew with ``python -m tools.docs.support_matrix``."""
    assert path.read_text(encoding="utf-8") == support_matrix.pages()[path]


def test_rows_are_told_apart() -> None:
    assert len({row.english for row in ROWS}) == len({row.chinese for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.english)
def test_every_mark_has_its_test(row: Row) -> None:
    """An engine's mark needs a test that runs that engine."""
    assert [test for test in row.tests if not is_a_test(f"tests/{test}")] == []
    # A server that is started to see it refuse is not one that serves.
    engines = {test.split("/")[0] for test in row.tests if "refuses_to_start" not in test}
    assert row.cpu in (SERVED, UNTESTED, NO) and row.ascend in (ASCEND, UNTESTED, NO)
    assert (row.cpu is SERVED) == bool(engines & {"engine", "e2e", "reliability"})
    assert (row.ascend is ASCEND) == ("ascend" in engines)
    assert bool(row.note) == bool(row.chinese_note)
    if NO in (row.cpu, row.ascend):
        assert row.note or row.tests
