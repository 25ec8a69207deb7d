# SPDX-License-Identifier: Apache-2.0
"""Say on stderr what the demo is doing; stdout is left to the table."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console

from tools.serving import GreedyRun


class Progress:
    """A line that stays for every step done; on a terminal also one that moves meanwhile."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._moving = console.status("")

    def __enter__(self) -> Progress:
        self._moving.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._moving.stop()

    def starting(self, number: int, total: int, title: str) -> None:
        self._console.print(f"{number}/{total} {title}", markup=False, highlight=False)
        self.waiting(0.0)

    def waiting(self, seconds: float) -> None:
        self._moving.update(f"    vllm serve is starting, {seconds:.0f} s")

    def serving(self, seconds: float) -> None:
        self._keep(f"    server ready after {seconds:.0f} s")

    def prompts_done(self, done: int, total: int) -> None:
        self._moving.update(f"    prompt {done} of {total}")

    def measured(self, run: GreedyRun) -> None:
        self._keep(f"    {run.tokens} tokens in {run.seconds:.1f} s")
        self._moving.update("    stopping the server")

    def _keep(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)
