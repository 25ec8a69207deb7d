# SPDX-License-Identifier: Apache-2.0
"""A draft aligned by the command line, served where nothing is corrected at run time.

``mode: off`` stands for an engine without the plugin: vLLM's CPU platform cannot load what
msModelSlim writes without the plugin's repairs.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.e2e.served import Served, serve_once
from tests.e2e.test_plugin_on import POSITION_TOLERANCE
from tools.serving import ReferencePair, ServeOptions
from vllm_eagle3_quarot.cli.app import app


@pytest.fixture(scope="module")
def aligned(pair: ReferencePair, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("aligned") / "draft"
    models = ["--draft-model-path", pair.draft, "--target-model-path", pair.rotated]
    done = CliRunner().invoke(app, ["align", *map(str, models), "--output-dir", str(folder)])
    assert done.exit_code == 0, done.output
    options = ServeOptions(target=pair.rotated, draft=folder, plugin={"mode": "off"})
    return serve_once(options, pair.completions, logs / "aligned.log", signal.SIGTERM)


def test_acceptance_is_that_of_the_unrotated_pair(aligned: Served, unrotated: Served) -> None:
    expected = unrotated.run.counters.acceptance
    assert aligned.run.counters.acceptance == pytest.approx(expected, abs=POSITION_TOLERANCE)


def test_text_is_that_of_the_target_without_speculation(aligned: Served, undrafted: Served) -> None:
    assert aligned.run.texts == undrafted.run.texts


def test_nothing_was_corrected_at_run_time(aligned: Served) -> None:
    assert "un-rotated" not in aligned.log
