# SPDX-License-Identifier: Apache-2.0
"""A server that is told to end before it serves ends as one without this plugin does.

vLLM 0.23.0 loses the first SIGTERM that comes while its engines start (``zmq_socket_ctx`` swallows
what the handler raises) and obeys the second. Its engine core ends at once; nobody tells a worker,
which goes on loading.
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

from tests.reliability.remains import clear, shared_memory_of
from tools.serving import ReferencePair, ServeOptions, Server, ServingError
from vllm_eagle3_quarot.serving import server as server_module
from vllm_eagle3_quarot.serving.processes import session_members

pytestmark = pytest.mark.soak

NO_PLUGIN = {"VLLM_EAGLE3_QUAROT_DISABLE": "1"}

Moment = Callable[[Server], bool]


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


GRACE_S = 90.0
"""How long workers may go on; seconds on a quiet machine."""


@dataclass(frozen=True)
class End:
    """How a server ended.

    Attributes:
        exit_code: as subprocess reports it.
        killed: names of the processes that did not end by themselves.
    """

    exit_code: int
    killed: frozenset[str]


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


def stopped_at(moment: Moment, options: ServeOptions, log: Path) -> End:
    """Start a server, tell it to end at that moment, and clear away what it leaves."""
    server = Server.of(options, log)
    given_up = Event()
    # Beside the thread that waits for the server: its requests to one that does not answer yet may
    # take longer than the moment lasts.
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
    assert session_members(server.process.pid) == []
    clear(shared_memory)
    return End(report.exit_code, frozenset(command.strip()[:20] for command in report.killed))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "STOP_GRACE_S", GRACE_S)


@pytest.fixture(scope="module")
def stock(pair: ReferencePair, logs: Path) -> End:
    """Without this plugin, and without a draft: vLLM 0.23.0 cannot draft on a CPU by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "STOP_GRACE_S", GRACE_S)
        options = ServeOptions(target=pair.original, environment=NO_PLUGIN)
        return stopped_at(loads_target, options, logs / "loads target, stock.log")


def test_while_the_draft_loads(pair: ReferencePair, logs: Path, stock: End) -> None:
    options = ServeOptions(target=pair.rotated, draft=pair.draft)
    assert stopped_at(loads_draft, options, logs / "loads draft.log") == stock


def test_while_the_kernels_are_built(
    pair: ReferencePair, logs: Path, tmp_path: Path, stock: End
) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    options = ServeOptions(target=pair.rotated, draft=pair.draft, environment=cache)
    assert stopped_at(builds_kernels, options, logs / "builds kernels.log") == stock


def _log(server: Server) -> str:
    return server.log.read_text(encoding="utf-8", errors="replace")
