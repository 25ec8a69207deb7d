# SPDX-License-Identifier: Apache-2.0
"""What was measured on each release, as it is committed (docs/en/files/engine-matrix.json)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.serving import GreedyRun

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "en" / "files" / "engine-matrix.json"

UNROTATED = "unrotated target + draft"
UNDRAFTED = "rotated target, no draft"
PLUGIN_ON = "rotated target + draft, plugin on"
PLUGIN_OFF = "rotated target + draft, plugin off"


@dataclass(frozen=True)
class Run:
    """Greedy completions of the reference prompts by one server.

    Attributes:
        acceptance: acceptance rate per position; empty without a draft.
        mean_length: mean acceptance length; 1 without a draft.
        text: SHA-256 of all completions.
    """

    acceptance: tuple[float, ...]
    mean_length: float
    text: str

    @classmethod
    def of(cls, run: GreedyRun) -> Run:
        """Sum up what a server gave."""
        counters = run.counters
        return cls(
            tuple(round(rate, 4) for rate in counters.acceptance) if counters.drafts else (),
            round(counters.mean_acceptance_length, 4) if counters.drafts else 1.0,
            hashlib.sha256("\0".join(run.texts).encode()).hexdigest(),
        )


@dataclass(frozen=True)
class Result:
    """One row of the matrix.

    Attributes:
        date: of the run, ISO 8601.
        versions: releases of ``vllm``, ``torch``, ``transformers`` and ``python``.
        passed: every assertion held; for a release that cannot run Eagle3: it says so by itself.
        refusal: what such a release says.
        runs: by the titles above; empty for such a release.
    """

    date: str
    versions: Mapping[str, str]
    passed: bool
    refusal: str | None
    runs: Mapping[str, Run]

    @property
    def greedy_equal(self) -> bool:
        """True when all servers of the rotated target wrote the same text."""
        titles = (UNDRAFTED, PLUGIN_ON, PLUGIN_OFF)
        return len({self.runs[title].text for title in titles}) == 1


def write_runs(path: Path, runs: Mapping[str, GreedyRun]) -> None:
    """Pass on what a test run measured."""
    path.write_text(json.dumps({title: asdict(Run.of(run)) for title, run in runs.items()}))


def read_runs(path: Path) -> dict[str, Run]:
    """Read what :func:`write_runs` wrote; empty when it did not get that far."""
    return _runs(json.loads(path.read_text())) if path.is_file() else {}


def read_results(path: Path = RESULTS) -> list[Result]:
    """Read the committed rows; none when there is no file yet."""
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return [Result(**{**row, "runs": _runs(row["runs"])}) for row in rows]


def write_results(results: Sequence[Result], path: Path = RESULTS) -> None:
    """Write the rows in the given order."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


def _runs(stored: Mapping[str, Any]) -> dict[str, Run]:
    return {
        title: Run(tuple(run["acceptance"]), run["mean_length"], run["text"])
        for title, run in stored.items()
    }
