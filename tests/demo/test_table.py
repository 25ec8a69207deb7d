# SPDX-License-Identifier: Apache-2.0
"""What the demo's table says for given measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tools.demo.configurations import configurations
from tools.demo.table import agreement, results_table, row
from tools.serving import GreedyRun, ReferencePair, SpecCounters

PAIR = ReferencePair(Path("o"), Path("u"), Path("r"), Path("d"), ("p",), ("c",))


def run(texts: tuple[str, ...], accepted: tuple[int, ...] = ()) -> GreedyRun:
    """128 tokens in two seconds, 100 drafts when something was accepted."""
    drafts = 100 if accepted else 0
    counters = SpecCounters(drafts, drafts * len(accepted), sum(accepted), accepted, 128)
    return GreedyRun(texts, 128, 2.0, counters)


def test_the_rows_differ_in_target_draft_and_mode_only() -> None:
    rows = {c.slug: c.options for c in configurations(PAIR) if c.in_table}
    assert list(rows) == ["unrotated", "undrafted", "plugin-off", "plugin-on"]
    assert [o.target == PAIR.rotated for o in rows.values()] == [False, True, True, True]
    assert [o.draft is not None for o in rows.values()] == [True, False, True, True]
    assert [o.plugin for o in rows.values()] == [None, None, {"mode": "off"}, {"mode": "runtime"}]


def test_text_is_compared_with_the_same_target_without_a_draft() -> None:
    servers = {c.slug: c for c in configurations(PAIR)}
    for server in servers.values():
        assert (server.undrafted is None) == (server.options.draft is None)
        if server.undrafted is not None:
            other = servers[server.undrafted]
            assert other.options == replace(server.options, draft=None, plugin=None)


def test_only_rows_are_shown() -> None:
    servers = configurations(PAIR)
    runs = {c.slug: run(("a",), (1, 1, 1) if c.options.draft else ()) for c in servers}
    assert results_table(servers, runs).row_count == 4


def test_a_row_with_a_draft_shows_rates_length_speed_and_agreement() -> None:
    on = next(c for c in configurations(PAIR) if c.slug == "plugin-on")
    runs = {"plugin-on": run(("a", "b"), (90, 80, 70)), "undrafted": run(("a", "b"))}
    assert row(on, runs)[1:] == ["0.900", "0.800", "0.700", "3.40", "64", "yes, 2 of 2"]


def test_a_row_without_a_draft_shows_speed_only() -> None:
    undrafted = next(c for c in configurations(PAIR) if c.slug == "undrafted")
    cells = row(undrafted, {"undrafted": run(("a",))})
    assert cells[1:] == ["-", "-", "-", "-", "64", "-"]


def test_a_text_that_differs_is_counted() -> None:
    assert agreement(run(("a", "x")), run(("a", "b"))) == "no, 1 of 2"
