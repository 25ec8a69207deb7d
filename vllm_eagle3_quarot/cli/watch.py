# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot watch``."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vllm_eagle3_quarot.cli.options import Json
from vllm_eagle3_quarot.cli.output import reported
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.interval import Interval
from vllm_eagle3_quarot.observability.scrape import Snapshot, look, metrics_url
from vllm_eagle3_quarot.settings import GuardSettings

#: Characters of a bar that stands for an acceptance rate of 1.
BAR = 30

#: Acceptance of the first token below which something is wrong with the pair.
COLLAPSED = GuardSettings().min_acceptance

#: Drafts since the start from which that is said.
ENOUGH_DRAFTS = 100


def watch_command(
    url: Annotated[str, typer.Argument(help="Address of a running `vllm serve`.", metavar="URL")],
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks at the server.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Two looks, one answer, the end.")] = False,
    as_json: Json = False,
) -> None:
    """Show acceptance per position, mean acceptance length and output tokens per second.

    They are read from the server's /metrics. Ctrl-C ends it. With --json each interval is one line.
    """
    with reported(as_json=as_json), contextlib.suppress(KeyboardInterrupt):
        address = metrics_url(url)
        before = look(address)
        if as_json or once:
            while True:
                time.sleep(interval)
                after = look(address)
                _print(address, before, after, as_json=as_json)
                if once:
                    return
                before = after
        _live(address, before, interval)


def _print(address: str, before: Snapshot, after: Snapshot, *, as_json: bool) -> None:
    recent = Interval.between(before, after)
    if not as_json:
        Console().print(_view(address, after, recent))
        return
    document = {
        "url": address,
        "models": after.models,
        "requests_running": after.running,
        "requests_waiting": after.waiting,
        "since_start": Interval(0.0, after.counters).document(),
        "interval": None if recent is None else recent.document(),
    }
    typer.echo(json.dumps(document))


def _live(address: str, before: Snapshot, interval: float) -> None:
    """Until Ctrl-C; a server that goes away is waited for."""
    recent: Interval | None = None
    with Live(_view(address, before, recent), auto_refresh=False) as screen:
        while True:
            time.sleep(interval)
            try:
                after = look(address)
            except ServingError as error:
                note = Text(f"{error}\nstill looking; Ctrl-C ends this", style="yellow")
                screen.update(Group(_view(address, before, None), note), refresh=True)
                continue
            recent, before = Interval.between(before, after), after
            screen.update(_view(address, after, recent), refresh=True)


def _view(address: str, seen: Snapshot, recent: Interval | None) -> RenderableType:
    start = Interval(0.0, seen.counters)
    title = Text(f"{', '.join(seen.models)}  {address}", style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("position", justify="right")
    table.add_column("acceptance now", justify="right")
    table.add_column("since start", justify="right")
    table.add_column("")
    recently = None if recent is None else recent.acceptance
    for position, rate in enumerate(start.acceptance or ()):
        now = None if recently is None else recently[position]
        shown = rate if now is None else now
        table.add_row(
            str(position + 1),
            _number(now, ".3f"),
            f"{rate:.3f}",
            Text("█" * round(shown * BAR), style="green" if shown > COLLAPSED else "red"),
        )
    length = None if recent is None else recent.mean_acceptance_length
    speed = None if recent is None else recent.output_tokens_per_second
    drafted = None if recent is None else recent.drafted_tokens_per_second
    lines = [
        f"mean acceptance length  {_number(length, '.2f')}"
        f"  (since start {_number(start.mean_acceptance_length, '.2f')})",
        f"output tok/s            {_number(speed, '.1f')}",
        f"drafted tok/s           {_number(drafted, '.1f')}",
        f"requests                {seen.running} running, {seen.waiting} waiting",
    ]
    parts: list[RenderableType] = [title, table, Text("\n".join(lines))]
    if start.acceptance is None:
        parts.append(Text("nothing was drafted yet: send a request", style="dim"))
    elif start.counters.drafts >= ENOUGH_DRAFTS and start.acceptance[0] < COLLAPSED:
        parts.append(
            Text(
                "The draft's first token is (nearly) never accepted: speculation costs time and "
                "saves none. To find out why: eagle3-quarot doctor --target ... --draft ...",
                style="bold red",
            )
        )
    return Group(*parts)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
