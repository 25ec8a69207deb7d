# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a server or to its starter, no process stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tools.serving.options import HOST
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.serving import server as server_module
from vllm_eagle3_quarot.serving.ports import claim_port
from vllm_eagle3_quarot.serving.processes import session_members
from vllm_eagle3_quarot.serving.server import Server

ROOT = Path(__file__).resolve().parents[2]
FAKE_SERVER = Path(__file__).with_name("fake_server.py")

MakeServer = Callable[..., Server]

STARTER = """
import os, signal, sys
from pathlib import Path
from vllm_eagle3_quarot.serving.server import Server
from vllm_eagle3_quarot.serving.signals import unwinding_on_termination

# A test run in the background hands down that it ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
port = int(sys.argv[3])
command = [sys.executable, sys.argv[1], str(port), sys.argv[4]]
with unwinding_on_termination():
    with Server(command, dict(os.environ), port, Path(sys.argv[2])) as server:
        print(server.process.pid, flush=True)
        if sys.argv[5] == "raise":
            raise ValueError("a failure of the program that uses the server")
        import time
        time.sleep(600)
"""
"""A program that uses a server as the demo does, to be interrupted from outside."""


def test_a_clean_stop_ends_parent_and_child(make_server: MakeServer) -> None:
    with make_server("good") as server:
        session = server.process.pid
        assert len(session_members(session)) == 2
        report = server.stop(signal.SIGINT)
    assert report.exit_code == 0
    assert report.killed == ()
    assert session_members(session) == []


@pytest.mark.parametrize("behaviour", ["leaves-child", "stubborn"])
def test_what_does_not_end_by_itself_is_killed_and_reported(
    make_server: MakeServer, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STOP_GRACE_S", 0.5)
    with make_server(behaviour) as server:
        session = server.process.pid
        report = server.stop()
    assert len(report.killed) == {"leaves-child": 1, "stubborn": 2}[behaviour]
    assert session_members(session) == []


def test_stopping_twice_returns_the_first_report(make_server: MakeServer) -> None:
    with make_server("good") as server:
        first = server.stop()
    assert server.stop() is first


def test_a_server_that_dies_is_reported_with_its_cause_in_one_line(
    make_server: MakeServer,
) -> None:
    with pytest.raises(ServingError) as caught, make_server("dies"):
        pytest.fail("the server cannot have started")
    message = str(caught.value)
    assert "exit code 1: RotationError: no rotation in /t: re-export" in message
    assert "server.log" in message
    assert "\n" not in message


def test_a_server_that_never_answers_is_given_up_and_ended(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "START_TIMEOUT_S", 1.5)
    waited: list[float] = []
    server = make_server("never-healthy", waited.append)
    with pytest.raises(ServingError, match="did not answer within"), server:
        pytest.fail("the server cannot have started")
    assert waited
    assert waited == sorted(waited)
    assert session_members(server.process.pid) == []


@pytest.mark.parametrize(
    ("event", "exit_code"),
    [
        ("raise", 1),
        (signal.SIGINT, -signal.SIGINT),
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGHUP, 128 + signal.SIGHUP),
    ],
)
def test_no_orphans_when_the_starter_ends(
    tmp_path: Path, event: str | signal.Signals, exit_code: int
) -> None:
    starter, session = _start_starter(tmp_path, "good", "raise" if event == "raise" else "wait")
    if isinstance(event, signal.Signals):
        assert len(session_members(session)) == 2
        starter.send_signal(event)
    assert starter.wait(timeout=30) == exit_code
    assert session_members(session) == []


def test_a_second_interrupt_kills_a_server_that_takes_its_time(tmp_path: Path) -> None:
    starter, session = _start_starter(tmp_path, "stubborn", "wait")
    starter.send_signal(signal.SIGINT)
    time.sleep(1)  # the starter now waits for the server, up to STOP_GRACE_S
    assert starter.poll() is None
    assert session_members(session)
    starter.send_signal(signal.SIGINT)
    starter.wait(timeout=server_module.STOP_GRACE_S / 3)
    assert session_members(session) == []


def test_a_port_in_use_is_refused_before_anything_starts() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ServingError, match=f"port {port} on {HOST} cannot be used"):
            claim_port(HOST, port)


def _start_starter(folder: Path, behaviour: str, then: str) -> tuple[subprocess.Popen[str], int]:
    """Start STARTER; return it and the session of its server once that answers."""
    port = claim_port(HOST, None)
    arguments = [str(FAKE_SERVER), str(folder / "server.log"), str(port), behaviour, then]
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert starter.stdout is not None
    session = int(starter.stdout.readline())
    assert psutil.pid_exists(session) or then == "raise"
    return starter, session
