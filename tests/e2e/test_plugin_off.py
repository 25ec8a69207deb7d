# SPDX-License-Identifier: Apache-2.0
"""With the plugin off nothing is corrected: the failure that the plugin exists for."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.e2e.served import Served, serve_once
from tools.engine_matrix.results import PLUGIN_OFF
from tools.serving import GreedyRun, ReferencePair, ServeOptions, Server, ServingError

BROKEN_MEAN_LENGTH = 1.2
"""A draft that sees a rotated stream guesses: 1.0 is no token accepted, and a prototype of this
pair, whose few frequent words are hit by chance, reached 1.13. A working draft is far above 2."""

GUARDED_DRAFTS = 500
"""The guard's window; 32 completions of 64 tokens make about four of them."""


@pytest.fixture(scope="module")
def off(pair: ReferencePair, logs: Path, measured: dict[str, GreedyRun]) -> Served:
    """The rotated target with its draft and ``mode: off``."""
    # Words of the reference pair are so few that chance alone accepts some 6 % of first tokens.
    guard = {"min_acceptance": 0.2, "after_drafts": GUARDED_DRAFTS}
    plugin = {"mode": "off", "guard": guard}
    options = ServeOptions(target=pair.rotated, draft=pair.draft, plugin=plugin)
    served = serve_once(options, pair.completions, logs / "off.log", signal.SIGTERM)
    measured[PLUGIN_OFF] = served.run
    return served


@pytest.mark.matrix
def test_a_rotated_target_rejects_nearly_every_proposal(off: Served) -> None:
    """vllm-project/vllm-ascend#5974: no error, no warning, no speed-up."""
    assert off.run.counters.mean_acceptance_length <= BROKEN_MEAN_LENGTH


@pytest.mark.matrix
def test_rejected_proposals_do_not_change_the_text(off: Served, undrafted: Served) -> None:
    assert off.run.texts == undrafted.run.texts


def test_the_log_says_that_the_mode_is_off(off: Served) -> None:
    assert "eagle3_quarot: mode is 'off'" in off.log


def test_the_guard_warns_once_with_the_command_that_finds_the_cause(
    off: Served, pair: ReferencePair
) -> None:
    """vllm-project/vllm-ascend#5974 again: this is what its reporter would have read."""
    warning = f"in only .* % of the last {GUARDED_DRAFTS} drafts: .* --draft {pair.draft}"
    assert len(re.findall(warning, off.log)) == 1


def test_disabled_by_the_environment_nothing_of_ours_acts(pair: ReferencePair, logs: Path) -> None:
    """vLLM's CPU platform is then left without a loader for what msModelSlim writes."""
    options = ServeOptions(
        target=pair.rotated,
        draft=pair.draft,
        environment={"VLLM_EAGLE3_QUAROT_DISABLE": "1"},
    )
    log = logs / "disabled.log"
    with pytest.raises(ServingError, match=r"KeyError.*weight_offset"), Server.of(options, log):
        pytest.fail("something still loads the quantised target")
    assert "eagle3_quarot:" not in log.read_text(encoding="utf-8", errors="replace")
