# SPDX-License-Identifier: Apache-2.0
"""One running server process, from its start to the end of its last child."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import httpx

from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import SpecCounters
from vllm_eagle3_quarot.serving.log_file import last_error
from vllm_eagle3_quarot.serving.ports import HOST, claim_port
from vllm_eagle3_quarot.serving.processes import end_session

POLL_S = 0.25
START_TIMEOUT_S = 600.0
STOP_GRACE_S = 30.0

Waiting = Callable[[float], None]
"""Called with the seconds since the start, a few times a second, until the server answers."""


class Launch(Protocol):
    """How to start one server."""

    def command(self, port: int) -> list[str]:
        """The argument vector of a server that listens on ``port`` of :data:`HOST`."""

    def full_environment(self) -> dict[str, str]:
        """The whole environment of its process."""


@dataclass(frozen=True)
class StopReport:
    """How a server ended.

    Attributes:
        exit_code: as subprocess reports it: negative for a signal that was not handled.
        seconds: from the request to stop to the end of the last process.
        killed: command lines of the processes that did not end by themselves.
    """

    exit_code: int
    seconds: float
    killed: tuple[str, ...]


class Server:
    """Context manager: entering starts the process and waits for /health, leaving ends all of it.

    The server leads a session of its own, so a Ctrl-C at the terminal reaches only this program,
    which then stops the server itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        port: int,
        log: Path,
        waiting: Waiting | None = None,
        start_timeout: float | None = None,
    ) -> None:
        self.url = f"http://{HOST}:{port}"
        self.log = log
        self._command = list(command)
        self._environment = dict(environment)
        self._waiting = waiting
        self._start_timeout = START_TIMEOUT_S if start_timeout is None else start_timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._report: StopReport | None = None
        # Proxies of the environment are not for the loopback address.
        self._http = httpx.Client(base_url=self.url, timeout=20.0, trust_env=False)

    @classmethod
    def of(
        cls,
        options: Launch,
        log: Path,
        port: int | None = None,
        waiting: Waiting | None = None,
    ) -> Server:
        """Prepare ``vllm serve`` with these options on ``port``, or on a free one.

        Raises:
            ServingError: the port is taken.
        """
        chosen = claim_port(HOST, port)
        return cls(options.command(chosen), options.full_environment(), chosen, log, waiting)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server's first process (vLLM's API server)."""
        if self._process is None:
            raise RuntimeError("the server has not been started: use it in a `with` block")
        return self._process

    def __enter__(self) -> Server:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._wait_until_healthy()
        except BaseException:  # whatever it is, Ctrl-C included, no process may stay behind
            self.stop()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> StopReport:
        """Stop the server and all that it started; a second call returns the first report."""
        if self._report is None:
            started = time.monotonic()
            killed = [] if self._process is None else end_session(self._process, sig, STOP_GRACE_S)
            code = 0 if self._process is None else self._process.wait()
            self._report = StopReport(code, time.monotonic() - started, tuple(killed))
            self._http.close()
        return self._report

    def counters(self) -> SpecCounters:
        """Read the speculative decoding counters; raises what :meth:`metrics` does."""
        return SpecCounters.from_text(self.metrics())

    def metrics(self) -> str:
        """Return /metrics in the Prometheus text format.

        Raises:
            ServingError: the server died or answers with an error.
        """
        try:
            response = self._http.get("/metrics").raise_for_status()
        except httpx.HTTPError as error:
            raise self.death_notice() or ServingError(f"{self.url}/metrics: {error}") from None
        return response.text

    def death_notice(self) -> ServingError | None:
        """Return the error to raise if the server has exited, else None."""
        code = self.process.poll()
        if code is None:
            return None
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        reason = last_error(self.log)
        if reason is None and code == -signal.SIGKILL:
            reason = "the machine may have run out of memory"
        return ServingError(f"the server {ended}: {reason or 'no reason given'} (log: {self.log})")

    def _wait_until_healthy(self) -> None:
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < self._start_timeout:
            if (notice := self.death_notice()) is not None:
                raise notice
            try:
                if self._http.get("/health").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            if self._waiting is not None:
                self._waiting(elapsed)
            time.sleep(POLL_S)
        raise ServingError(
            f"the server did not answer within {self._start_timeout:.0f} s (log: {self.log})"
        )
