# SPDX-License-Identifier: Apache-2.0
"""What every command prints: lines for people, or one JSON object; errors and their exit codes."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from vllm_eagle3_quarot.errors import CheckpointError, QuaRotError

#: The input was understood and the answer is no.
REFUSED = 1

#: The input could not be read, or the output could not be written.
UNREADABLE = 2

_errors = Console(stderr=True, soft_wrap=True)


def show(document: Mapping[str, object], lines: list[str], *, as_json: bool) -> None:
    """Print the result: ``document`` as JSON, or ``lines``."""
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    for line in lines:
        typer.echo(line)


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Turn this package's errors into one line and an exit code."""
    handler = RichHandler(console=_errors, show_time=False, show_path=False)
    logger = logging.getLogger("vllm.eagle3_quarot")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    except QuaRotError as error:
        kind = type(error).__name__
        if as_json:
            typer.echo(json.dumps({"error": {"kind": kind, "message": str(error)}}, indent=2))
        else:
            _errors.print(f"error: {error}", style="bold red", markup=False, highlight=False)
        code = UNREADABLE if isinstance(error, CheckpointError) else REFUSED
        raise typer.Exit(code) from error
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


@contextmanager
def progress_bar(
    title: str, total: int, *, as_json: bool, in_bytes: bool = True
) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances a bar on standard error by a number of bytes or steps."""
    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn())
    hidden = as_json or not sys.stderr.isatty()
    with Progress(*columns, console=_errors, disable=hidden) as progress:
        task = progress.add_task(title, total=total)

        def advance(count: float) -> None:
            progress.advance(task, count)

        yield advance
