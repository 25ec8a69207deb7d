# SPDX-License-Identifier: Apache-2.0
"""Tests that stand for a row of the table in docs/en/drafts.md: ``pytest -m variants`` lists them.

``@pytest.mark.variants(2)`` puts ``row 2`` into the ids of a test; a test whose cases stand for
different rows is marked without a number and names them in its own ids. The last lines of a run
that selects the marker count the tests of every row.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

ROWS = {
    1: "formats and architecture names",
    2: "token embedding",
    3: "lm_head",
    4: "combinations of both",
    5: "norms",
    6: "aux states and layer ids",
    7: "no aux states",
    8: "widths",
    9: "mask state",
    10: "depth and heads",
    11: "quantised draft",
    12: "other draft classes",
    13: "dtypes",
    14: "vocabulary maps",
}

MARKER = "variants"

_ROW_IN_ID = re.compile(r"\brow (\d+)\b")


@pytest.fixture(autouse=True)
def variant_row(request: pytest.FixtureRequest) -> int | None:
    """The row that a test stands for; here so that it is part of the test's id."""
    return getattr(request, "param", None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Put the rows of the marker into the ids."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is not None and marker.args:
        ids = [" ".join(f"row {row}" for row in marker.args)]
        metafunc.parametrize("variant_row", [marker.args[0]], ids=ids, indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the tests of every row, when the marker was asked for."""
    options = terminalreporter.config.option
    if options.collectonly or MARKER not in options.markexpr:
        return
    outcomes = {row: Counter[str]() for row in ROWS}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for row in _ROW_IN_ID.findall(report.nodeid):
                outcomes[int(row)][outcome] += 1
    terminalreporter.section("rows of docs/en/drafts.md")
    for row, name in ROWS.items():
        counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes[row].items())
        terminalreporter.write_line(f"row {row:2} {name:32} {counted or 'no test was run'}")
