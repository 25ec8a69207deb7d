# SPDX-License-Identifier: Apache-2.0
"""With the plugin on, a rotated target drafts as well as the unrotated one."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.clients import Answer, send_requests
from tests.e2e.served import DTYPE, MAX_TOKENS, PROMPTS, Served
from tools.docs import grafana
from tools.engine_matrix.results import PLUGIN_ON
from tools.serving import GreedyRun, ReferencePair, ServeOptions, Server, greedy_run

WORKING_FIRST_POSITION = 0.8
"""What the reference pair has to reach unrotated, to be worth comparing with."""

POSITION_TOLERANCE = 0.06
"""Absolute, per position. Rotating before rounding to 8 bits moves the weights' rounding errors, so
the two targets write different texts; at some 600 drafts the standard error of a rate near 0.9 is
0.012, of a difference 0.017, and 0.06 is three to four of those."""

MEAN_LENGTH_TOLERANCE = 0.05
"""Relative. The mean adds the positions up, so its noise is below theirs; an un-rotation that is
wrong in any part falls to a third."""

CLIENTS = 8
REQUESTS_PER_CLIENT = 20


@pytest.fixture(scope="module")
def server(
    pair: ReferencePair, logs: Path, unrotated: Served, undrafted: Served
) -> Iterator[Server]:
    """The rotated target with its draft and nothing said about the plugin: on is the default.

    `unrotated` and `undrafted` are asked for here so that they have come and gone before.
    """
    options = replace(ServeOptions(target=pair.rotated, draft=pair.draft), dtype=DTYPE)
    with Server.of(options, logs / "on.log") as running:
        yield running
        report = running.stop(signal.SIGINT)
    assert (report.exit_code, report.killed) == (0, ()), "the server did not end cleanly"


@pytest.fixture(scope="module")
def on(server: Server, pair: ReferencePair, measured: dict[str, GreedyRun]) -> GreedyRun:
    run = greedy_run(server, pair.completions[:PROMPTS], MAX_TOKENS)
    measured[PLUGIN_ON] = run
    return run


@pytest.mark.matrix
def test_the_unrotated_pair_is_a_baseline_worth_reaching(unrotated: Served) -> None:
    assert unrotated.run.counters.acceptance[0] >= WORKING_FIRST_POSITION


@pytest.mark.matrix
def test_acceptance_of_every_position_is_that_of_the_unrotated_pair(
    on: GreedyRun, unrotated: Served
) -> None:
    expected = unrotated.run.counters.acceptance
    assert on.counters.acceptance == pytest.approx(expected, abs=POSITION_TOLERANCE)


@pytest.mark.matrix
def test_mean_acceptance_length_is_that_of_the_unrotated_pair(
    on: GreedyRun, unrotated: Served
) -> None:
    expected = unrotated.run.counters.mean_acceptance_length
    assert on.counters.mean_acceptance_length == pytest.approx(expected, rel=MEAN_LENGTH_TOLERANCE)


@pytest.mark.matrix
def test_greedy_text_is_that_of_the_target_without_speculation(
    on: GreedyRun, undrafted: Served
) -> None:
    assert on.texts == undrafted.run.texts


def test_every_query_of_the_dashboard_names_a_series_of_the_server(
    server: Server, on: GreedyRun
) -> None:
    samples = [
        sample
        for family in text_string_to_metric_families(server.metrics())
        for sample in family.samples
    ]
    labels = {sample.name: sample.labels.keys() for sample in samples if sample.value > 0}
    for panel in grafana.PANELS:
        queried = set(re.findall(r"vllm:\w+", panel.query))
        assert queried <= labels.keys()
        shown = set(re.findall(r"{{(\w+)}}", panel.legend))
        assert any(shown <= labels[name] for name in queried)


def test_concurrent_clients_are_all_served(server: Server, pair: ReferencePair) -> None:
    """Completions and chats, streamed and not, greedy and sampled, eight clients at once."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        waiting = [
            pool.submit(send_requests, server, pair, client, REQUESTS_PER_CLIENT)
            for client in range(CLIENTS)
        ]
        answers: list[Answer] = [answer for future in waiting for answer in future.result()]
    assert len(answers) == CLIENTS * REQUESTS_PER_CLIENT
    assert [answer for answer in answers if not answer.is_complete] == []


def test_the_server_drafts_as_well_after_the_crowd(
    server: Server, pair: ReferencePair, on: GreedyRun
) -> None:
    again = greedy_run(server, pair.completions[:PROMPTS], MAX_TOKENS)
    assert again.texts == on.texts
    assert again.counters.mean_acceptance_length == pytest.approx(
        on.counters.mean_acceptance_length, rel=MEAN_LENGTH_TOLERANCE
    )
