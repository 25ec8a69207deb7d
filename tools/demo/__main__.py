# SPDX-License-Identifier: Apache-2.0
"""Run the demo: ``python -m tools.demo`` from the repository's folder (``make demo`` does)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tools.demo.configurations import configurations
from tools.demo.measure import measure
from tools.demo.preflight import check_installation, check_memory
from tools.demo.progress import Progress
from tools.demo.table import results_table
from tools.serving import ReferencePair, ServingError
from tools.serving.options import HOST
from tools.serving.reference_pair import FOLDER
from vllm_eagle3_quarot.serving.ports import claim_port
from vllm_eagle3_quarot.serving.signals import unwinding_on_termination

PROMPTS = 32
MAX_TOKENS = 64
LOGS = Path(".logs") / "demo"
WIDTH_WITHOUT_TERMINAL = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code; every failure is one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        with unwinding_on_termination():
            _run(options.pair, options.port)
    except ServingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; all servers are stopped", file=sys.stderr)
        return 130
    except SystemExit as termination:
        print("terminated; all servers are stopped", file=sys.stderr)
        return int(termination.code or 0)
    return 0


def _run(folder: Path, port: int | None) -> None:
    pair = ReferencePair.load(folder)
    check_installation()
    check_memory()
    claim_port(HOST, port)
    servers = configurations(pair)
    prompts = pair.completions[:PROMPTS]
    runs = {}
    with Progress(Console(stderr=True)) as progress:
        for number, server in enumerate(servers, 1):
            progress.starting(number, len(servers), server.title)
            runs[server.slug] = measure(server, prompts, MAX_TOKENS, LOGS, port, progress)
    output = Console()
    if not output.is_terminal:
        output.width = WIDTH_WITHOUT_TERMINAL
    output.print(results_table(servers, runs))
    output.print(f"{len(prompts)} prompts, {MAX_TOKENS} tokens each, greedy, one at a time.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--port", type=int, help="port of the servers (default: any free one)")
    parser.add_argument(
        "--pair",
        type=Path,
        default=FOLDER,
        help="folder of the reference pair (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
