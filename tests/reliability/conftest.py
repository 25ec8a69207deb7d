# SPDX-License-Identifier: Apache-2.0
"""Reliability under load and faults: what takes many minutes runs only when asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.report import SoakReport
from tools.serving import ReferencePair

HERE = Path(__file__).parent

MARKER = "soak"
TIMEOUT_S = 1800

REPORT = pytest.StashKey[SoakReport]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All of this folder starts real servers; the longer part is left out unless selected."""
    asked = MARKER in config.option.markexpr
    left_out = []
    for item in list(items):
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        if item.get_closest_marker(MARKER) is None:
            item.add_marker(pytest.mark.e2e)
        elif not asked:
            items.remove(item)
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if MARKER in config.option.markexpr and (report := config.stash.get(REPORT, None)) is not None:
        terminalreporter.write_line(report.markdown())


@pytest.fixture(scope="session")
def pair() -> ReferencePair:
    return ReferencePair.load()


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")
