# SPDX-License-Identifier: Apache-2.0
"""The environment with vllm-ascend in which the engines of these tests run.

The tests themselves run in the main environment and start ``tests.ascend.engines`` there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.ascend.jobs import Job, Outcome, run
from tests.support.other_environment import interpreter_of

HERE = Path(__file__).resolve().parent
VARIABLE = "EAGLE3_QUAROT_ASCEND_VENV"

TIMEOUT_S = 1200
"""A fixture builds several engines on a machine that may be busy."""

RunJobs = Callable[..., list[Outcome]]

#: Run by test_contract.py, in the other environment.
collect_ignore = ["in_host"]

_MEASURED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_MEASURED] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """What the engines accepted, so that a run of these tests can be quoted."""
    if config.stash[_MEASURED]:
        terminalreporter.section("accepted / drafted, vllm-ascend on the fake device")
        for line in config.stash[_MEASURED]:
            terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ascend)
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def interpreter() -> Path:
    return interpreter_of(VARIABLE, ".venv-ascend", "vllm-ascend", "test-ascend", "the fake CANN")


@pytest.fixture(scope="session")
def note(request: pytest.FixtureRequest) -> Callable[[str, Outcome], None]:
    """Puts an outcome into the summary at the end."""

    def add(name: str, outcome: Outcome) -> None:
        rate = f"{outcome.acceptance:.3f}" if outcome.drafted else outcome.error[:80]
        line = f"{name:45} {outcome.accepted:4} / {outcome.drafted:<4} {rate}"
        request.config.stash[_MEASURED].append(line)

    return add


@pytest.fixture(scope="session")
def fake_cann(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the fake CANN's libraries; the first process builds them."""
    return tmp_path_factory.mktemp("fake_cann")


@pytest.fixture(scope="session")
def run_jobs(interpreter: Path, fake_cann: Path) -> RunJobs:
    """Runs jobs in one process of that environment; see :func:`tests.ascend.jobs.run`."""

    def run_there(jobs: Sequence[Job], **options: Any) -> list[Outcome]:
        return run(interpreter, fake_cann, jobs, **options)

    return run_there
