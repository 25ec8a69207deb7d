# SPDX-License-Identifier: Apache-2.0
"""Servers of the reference pair, each started once for all tests that look at it.

They run one after the other: two cores hardly carry one, and each takes several GB.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.served import Served, serve_once
from tools.engine_matrix.measure import MEASURED_VARIABLE
from tools.engine_matrix.results import UNDRAFTED, UNROTATED, write_runs
from tools.serving import GreedyRun, ReferencePair, ServeOptions

MEASURED = pytest.StashKey[dict[str, GreedyRun]]()
"""Runs whose figures are printed at the end of the report; speed is shown, never asserted."""


@pytest.fixture(scope="session")
def measured(pytestconfig: pytest.Config) -> dict[str, GreedyRun]:
    return pytestconfig.stash.setdefault(MEASURED, {})


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    runs = config.stash.get(MEASURED, {})
    if runs and MEASURED_VARIABLE in os.environ:
        write_runs(Path(os.environ[MEASURED_VARIABLE]), runs)
    for title, run in runs.items():
        counters = run.counters
        drafting = ""
        if counters.drafts:
            rates = " / ".join(f"{rate:.3f}" for rate in counters.acceptance)
            drafting = f", acceptance {rates}, mean length {counters.mean_acceptance_length:.2f}"
        terminalreporter.write_line(f"{title}: {run.tokens_per_second:.0f} tok/s{drafting}")


@pytest.fixture(scope="session")
def pair() -> ReferencePair:
    return ReferencePair.load()


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def unrotated(pair: ReferencePair, logs: Path, measured: dict[str, GreedyRun]) -> Served:
    """The unrotated W8A8 target with its draft: what the plugin has to restore."""
    options = ServeOptions(target=pair.unrotated, draft=pair.draft)
    served = serve_once(options, pair.completions, logs / "unrotated.log", signal.SIGINT)
    measured[UNROTATED] = served.run
    return served


@pytest.fixture(scope="session")
def undrafted(pair: ReferencePair, logs: Path, measured: dict[str, GreedyRun]) -> Served:
    """The rotated W8A8 target without a draft: the text that speculation has to reproduce."""
    options = ServeOptions(target=pair.rotated)
    served = serve_once(options, pair.completions, logs / "undrafted.log", signal.SIGTERM)
    measured[UNDRAFTED] = served.run
    return served
