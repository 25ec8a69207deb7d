# SPDX-License-Identifier: Apache-2.0
"""A server that is told to end before it serves ends as one without this plugin does.

vLLM 0.23.0 loses the first SIGTERM that comes while its engines start (``zmq_socket_ctx`` swallows
what the handler raises) and obeys the second. Its engine core ends at once, a worker when it has
loaded; nobody tells it before.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psutil
import pytest

from tests.reliability.remains import shared_memory_of, what_is_left
from tools.serving import ReferencePair, ServeOptions, Server, ServingError
from tools.serving.processes import session_members
from vllm_eagle3_quarot.serving import server as server_module

NO_PLUGIN = {"VLLM_EAGLE3_QUAROT_DISABLE": "1"}

Moment = Callable[[Server], bool]
StoppedAt = Callable[[Moment, ServeOptions, Path], "End"]


def loads_target(server: Server) -> bool:
    return "Starting to load model" in _log(server)


def loads_draft(server: Server) -> bool:
    return "Loading drafter model" in _log(server)


def builds_kernels(server: Server) -> bool:
    if not _log(server):
        return False  # not even started
    for process in session_members(server.process.pid):
        try:
            if "kernels.cpp" in " ".join(process.cmdline()):
                return True
        except psutil.NoSuchProcess:
            continue
    return False


LOADING_S = 240.0
"""How long a worker may go on loading; seconds on a quiet machine."""


@dataclass(frozen=True)
class End:
    """How a server ended.

    Attributes:
        exit_code: as subprocess reports it.
        killed: what did not end by itself.
        left: processes and shared memory that are still there.
    """

    exit_code: int
    killed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


CLEAN = End(-signal.SIGINT)
"""vLLM makes a Ctrl-C of a SIGTERM that comes so early."""


def strike(server: Server, moment: Moment, given_up: Event) -> set[Path] | None:
    """Wait for the moment and send SIGTERM twice; return the shared memory that was in use then."""
    while not given_up.wait(0.1):
        if server.log.exists() and moment(server):
            shared_memory = shared_memory_of(server.process.pid)
            server.process.send_signal(signal.SIGTERM)
            given_up.wait(1.0)
            server.process.send_signal(signal.SIGTERM)  # nothing, if the first one was enough
            return shared_memory
    return None


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> StoppedAt:
    """Return a function that starts a server and tells it to end at a moment."""
    monkeypatch.setattr(server_module, "STOP_GRACE_S", LOADING_S)

    def stop(moment: Moment, options: ServeOptions, log: Path) -> End:
        server = Server.of(options, log)
        given_up = Event()
        # Beside the thread that waits for the server: its requests to one that does not answer yet
        # may take longer than the moment lasts.
        with ThreadPoolExecutor(1) as pool:
            struck = pool.submit(strike, server, moment, given_up)
            try:
                with pytest.raises(ServingError), server:
                    pytest.fail("the server started")
            finally:
                given_up.set()
        shared_memory = struck.result()
        assert shared_memory is not None, f"the moment never came: {_log(server)[-2000:]}"
        report = server.stop()
        left = what_is_left(server.process.pid, shared_memory)
        return End(report.exit_code, report.killed, tuple(left))

    return stop


def test_while_the_draft_loads(stopped_at: StoppedAt, pair: ReferencePair, logs: Path) -> None:
    options = ServeOptions(target=pair.rotated, draft=pair.draft)
    assert stopped_at(loads_draft, options, logs / "loads draft.log") == CLEAN


@pytest.mark.soak
def test_while_the_kernels_are_built(
    stopped_at: StoppedAt, pair: ReferencePair, logs: Path, tmp_path: Path
) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    options = ServeOptions(target=pair.rotated, draft=pair.draft, environment=cache)
    assert stopped_at(builds_kernels, options, logs / "builds kernels.log") == CLEAN


@pytest.mark.soak
def test_that_is_how_a_server_without_the_plugin_ends(
    stopped_at: StoppedAt, pair: ReferencePair, logs: Path
) -> None:
    options = ServeOptions(target=pair.original, environment=NO_PLUGIN)
    assert stopped_at(loads_target, options, logs / "loads target, stock.log") == CLEAN


def _log(server: Server) -> str:
    return server.log.read_text(encoding="utf-8", errors="replace")
