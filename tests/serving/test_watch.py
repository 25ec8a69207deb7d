# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot watch``: the figures of a server, and one line when there are none."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from vllm_eagle3_quarot.cli.app import app
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.scrape import metrics_url
from vllm_eagle3_quarot.serving.ports import HOST, claim_port
from vllm_eagle3_quarot.serving.server import Server

MakeServer = Callable[..., Server]


def _watch(url: str, *arguments: str) -> Result:
    # Wide enough that no message is broken into lines.
    return CliRunner().invoke(app, ["watch", url, *arguments], env={"COLUMNS": "300"})


def test_json_has_what_was_counted_since_the_start_and_meanwhile(make_server: MakeServer) -> None:
    with make_server("speculates") as server:
        result = _watch(server.url, "--once", "--json", "--interval", "0.1")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["models"] == ["reference"]
    assert (document["requests_running"], document["requests_waiting"]) == (2, 1)
    recent = document["interval"]
    assert recent["acceptance_per_position"] == [0.9, 0.7, 0.4]
    assert recent["mean_acceptance_length"] == 3.0
    assert (recent["drafts"], recent["output_tokens"]) == (100, 300)
    assert recent["output_tokens_per_second"] == pytest.approx(300 / recent["seconds"])
    assert document["since_start"]["drafts"] == 200
    assert "output_tokens_per_second" not in document["since_start"]


def test_one_view_for_people(make_server: MakeServer) -> None:
    with make_server("speculates") as server:
        result = _watch(server.url, "--once", "--interval", "0.1")
    assert result.exit_code == 0
    assert re.search(r"^ +2 +0\.700 +0\.700", result.stdout, re.MULTILINE)
    assert "mean acceptance length  3.00" in result.stdout
    assert "2 running, 1 waiting" in result.stdout
    assert "doctor" not in result.stdout


def test_a_collapsed_draft_is_named_with_what_to_do(make_server: MakeServer) -> None:
    with make_server("collapsed") as server:
        result = _watch(server.url, "--once", "--interval", "0.1")
    assert "never accepted" in result.stdout
    assert "eagle3-quarot doctor" in result.stdout


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("no-speculation", "this server of reference runs without speculation"),
        ("not-vllm", "has no series of vLLM"),
    ],
)
def test_a_server_that_has_no_such_figures(
    make_server: MakeServer, behaviour: str, reason: str
) -> None:
    with make_server(behaviour) as server:
        result = _watch(server.url, "--once")
        as_json = _watch(server.url, "--once", "--json")
    assert result.exit_code == 1
    assert reason in result.stderr
    assert "Traceback" not in result.output
    assert reason in json.loads(as_json.stdout)["error"]["message"]


def test_nothing_listens_there() -> None:
    port = claim_port(HOST, None)
    result = _watch(f"{HOST}:{port}", "--once")
    assert result.exit_code == 1
    assert f"http://{HOST}:{port}/metrics does not answer (" in result.stderr
    assert "refused" in result.stderr


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/metrics"),
        ("http://host:8000/", "http://host:8000/metrics"),
        ("http://host:8000/metrics", "http://host:8000/metrics"),
        ("http://host:8000/v1", "http://host:8000/metrics"),
        ("https://gateway/llm/v1/", "https://gateway/llm/metrics"),
        ("http://[::1]:8000", "http://[::1]:8000/metrics"),
    ],
)
def test_addresses(given: str, read: str) -> None:
    assert metrics_url(given) == read


@pytest.mark.parametrize("given", ["", "ftp://host", "http://host:notaport", "http://host:99999"])
def test_no_addresses(given: str) -> None:
    with pytest.raises(ServingError, match="no address of a server"):
        metrics_url(given)


def test_the_live_view_waits_for_a_server_that_went_away(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_server("speculates") as server:
        steps: list[Callable[[], object]] = [lambda: None, server.stop, _ctrl_c]
        clock = SimpleNamespace(sleep=lambda seconds: steps.pop(0)())
        monkeypatch.setattr("vllm_eagle3_quarot.cli.watch.time", clock)
        result = _watch(server.url)
    assert result.exit_code == 0
    assert "0.900" in result.stdout
    assert "does not answer" in result.stdout
    assert "still looking" in result.stdout


def _ctrl_c() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_ends_it_cleanly(make_server: MakeServer) -> None:
    with make_server("speculates") as server:
        command = [sys.executable, "-m", "vllm_eagle3_quarot", "watch", server.url]
        watching = subprocess.Popen(
            [*command, "--json", "--interval", "0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # A test run in the background hands down that it ignores Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=30)
    assert [json.loads(line)["interval"]["drafts"] for line in lines] == [100, 100]
    assert watching.returncode == 0
    assert "Traceback" not in errors
