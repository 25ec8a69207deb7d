# SPDX-License-Identifier: Apache-2.0
"""The command line: one function per subcommand, each in a file of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_eagle3_quarot import __version__
from vllm_eagle3_quarot.cli.align import align_command
from vllm_eagle3_quarot.cli.bench import bench_command
from vllm_eagle3_quarot.cli.doctor import doctor_command
from vllm_eagle3_quarot.cli.recover import recover_command
from vllm_eagle3_quarot.cli.rotate import rotate_command
from vllm_eagle3_quarot.cli.watch import watch_command

app = typer.Typer(
    name="eagle3-quarot",
    help="Eagle3 drafts on QuaRot-rotated targets: look, align, recover, rotate, watch, bench.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Eagle3 drafts on QuaRot-rotated targets."""


app.command("doctor")(doctor_command)
app.command("align")(align_command)
app.command("recover")(recover_command)
app.command("rotate")(rotate_command)
app.command("watch")(watch_command)
app.command("bench")(bench_command)


def main() -> None:
    """Run the command that the arguments of the process name."""
    app()
