# SPDX-License-Identifier: Apache-2.0
"""The demo's one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from tools.demo.configurations import Configuration
from tools.serving import GreedyRun

POSITIONS = 3
NOT_APPLICABLE = "-"


def results_table(configurations: Sequence[Configuration], runs: Mapping[str, GreedyRun]) -> Table:
    """Return one row per configuration that is to be shown; ``runs`` is keyed by slug."""
    table = Table()
    table.add_column("served")
    for position in range(1, POSITIONS + 1):
        table.add_column(f"acceptance\nat {position}", justify="right")
    table.add_column("mean\nlength", justify="right")
    table.add_column("output\ntok/s", justify="right")
    table.add_column("greedy output\nidentical to\nno speculation", justify="right")
    for configuration in configurations:
        if configuration.in_table:
            table.add_row(*row(configuration, runs))
    return table


def row(configuration: Configuration, runs: Mapping[str, GreedyRun]) -> list[str]:
    """Return the cells of one row as text."""
    run = runs[configuration.slug]
    if configuration.options.draft is None:
        speculation = [NOT_APPLICABLE] * (POSITIONS + 1)
    else:
        speculation = [f"{rate:.3f}" for rate in run.counters.acceptance]
        speculation.append(f"{run.counters.mean_acceptance_length:.2f}")
    return [
        configuration.title,
        *speculation,
        f"{run.tokens_per_second:.0f}",
        agreement(run, None if configuration.undrafted is None else runs[configuration.undrafted]),
    ]


def agreement(run: GreedyRun, undrafted: GreedyRun | None) -> str:
    """Say how many texts equal those of the same target without speculation."""
    if undrafted is None:
        return NOT_APPLICABLE
    pairs = list(zip(run.texts, undrafted.texts, strict=True))
    same = sum(a == b for a, b in pairs)
    return f"{'yes' if same == len(pairs) else 'no'}, {same} of {len(pairs)}"
