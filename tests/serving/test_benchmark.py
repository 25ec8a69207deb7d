# SPDX-License-Identifier: Apache-2.0
"""Rounds of servers and loads, and what is written of them; servers and client are stand-ins."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import FAKE_SERVER
from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.dataset import Dataset
from vllm_eagle3_quarot.benchmarking.files import write_files
from vllm_eagle3_quarot.benchmarking.launch import PairLaunch
from vllm_eagle3_quarot.benchmarking.matrix import Draft, Load, Sampling, ServerSpec
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.report import report
from vllm_eagle3_quarot.benchmarking.runner import run_matrix
from vllm_eagle3_quarot.benchmarking.summary import document
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.serving.server import Server

LOADS = [Load(1, Sampling.greedy), Load(4, Sampling.sampled)]


@dataclass(frozen=True)
class FakeLaunch:
    """The fake server, of one behaviour."""

    behaviour: str

    def command(self, port: int) -> list[str]:
        return [sys.executable, str(FAKE_SERVER), str(port), self.behaviour]

    def full_environment(self) -> dict[str, str]:
        return dict(os.environ)


@dataclass(frozen=True)
class FakeClient(Client):
    """Answers without sending anything; remembers what it was asked for."""

    asked: list[tuple[str, Load, int]] = field(default_factory=list)

    def send(self, server: Server, spec: ServerSpec, load: Load, prompts: int) -> dict[str, Any]:
        self.asked.append((spec.target, load, prompts))
        speed = 10.0 * len(self.asked)
        milliseconds = {
            f"{statistic}_{name}_ms": 1000.0 / speed
            for name in ("ttft", "tpot")
            for statistic in ("mean", "p50", "p99")
        }
        return {
            "completed": prompts,
            "total_output_tokens": 10 * prompts,
            "output_throughput": speed,
            "errors": [""] * prompts,
            "generated_texts": ["fine"] * prompts,
            **milliseconds,
        }


def _spec(target: str, draft: Draft, behaviour: str) -> ServerSpec:
    return ServerSpec(target, draft, 0 if draft is Draft.none else 3, FakeLaunch(behaviour), "", "")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeClient, dict[str, Any]]:
    client = FakeClient(Dataset.built_in(), prompts=8, output_tokens=16)
    servers = [
        _spec("plain", Draft.none, "no-speculation"),
        _spec("rotated", Draft.runtime, "speculates"),
    ]
    said: list[str] = []
    results = run_matrix(
        servers, LOADS, client, rounds=2, logs=tmp_path_factory.mktemp("logs"), say=said.append
    )
    assert "round 2/2, server 2/2: rotated, draft, corrected at run time, K = 3" in said
    return client, document(results, client, Provenance.now(["bench", "--rounds", "2"]))


def test_rounds_visit_every_server_in_turn(measured: tuple[FakeClient, dict[str, Any]]) -> None:
    client, _ = measured
    expected = [(target, load, 8) for target in ("plain", "rotated") * 2 for load in LOADS]
    assert client.asked == expected


def test_figures_are_medians_with_their_spread(
    measured: tuple[FakeClient, dict[str, Any]],
) -> None:
    _, found = measured
    plain, rotated = found["servers"]
    speed = plain["loads"][0]["output_tokens_per_second"]
    assert speed == {"median": 30.0, "min": 10.0, "max": 50.0}  # first and fifth run
    assert plain["loads"][0]["mean_acceptance_length"] is None
    assert plain["start_up_seconds"]["min"] > 0
    assert plain["peak_rss_bytes"]["min"] > 2**20
    load = rotated["loads"][1]
    assert [rate["median"] for rate in load["acceptance_per_position"]] == [0.9, 0.7, 0.4]
    assert load["mean_acceptance_length"]["median"] == 3.0
    assert load["acceptance_rate"]["median"] == pytest.approx(2 / 3)
    assert len(load["runs"]) == 2


def test_tables_say_what_the_numbers_are_of(measured: tuple[FakeClient, dict[str, Any]]) -> None:
    _, found = measured
    english, chinese = report(found), report(found, "zh")
    assert "| plain | no speculation | - | 1 | greedy | 30.0 (10.0 … 50.0) |" in english
    assert "| 0.667 | 0.900 / 0.700 / 0.400 | 3.00 | 0 / 16 |" in english
    for text in (english, chinese):
        assert "`bench --rounds 2`" in text
        assert "not measured" in text
    assert "CPU numbers: " in english
    assert "| plain | 无投机解码 | - | 1 | 贪心 |" in chinese


def test_degenerate_outputs_are_flagged(measured: tuple[FakeClient, dict[str, Any]]) -> None:
    _, found = measured
    circling = json.loads(json.dumps(found))
    circling["servers"][0]["loads"][0]["degenerate"] = 2
    assert "2 / 16 ⚠" in report(circling)


def test_files(measured: tuple[FakeClient, dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs the extra 'bench'")
    _, found = measured
    files = write_files(found, tmp_path)
    assert [file.name for file in files] == [
        "serving.json",
        "provenance.json",
        "serving.md",
        "serving.png",
    ]
    assert json.loads(files[0].read_text()) == json.loads(json.dumps(found))
    assert json.loads(files[1].read_text())["command"] == "bench --rounds 2"
    assert files[3].read_bytes().startswith(b"\x89PNG")


def test_a_server_that_dies_names_its_reason(tmp_path: Path) -> None:
    client = FakeClient(Dataset.built_in(), prompts=1, output_tokens=1)
    with pytest.raises(ServingError, match="no rotation in /t: re-export"):
        run_matrix(
            [_spec("broken", Draft.none, "dies")],
            LOADS,
            client,
            rounds=1,
            logs=tmp_path,
            say=lambda line: None,
        )


def test_a_refused_request_is_an_error(tmp_path: Path) -> None:
    client = FakeClient(Dataset.built_in(), prompts=1, output_tokens=1)
    with pytest.raises(ServingError, match="400 Bad Request"):
        run_matrix(
            [_spec("other", Draft.none, "not-vllm")],
            LOADS,
            client,
            rounds=1,
            logs=tmp_path,
            say=lambda line: None,
        )


def test_a_pairs_command_line() -> None:
    launch = PairLaunch("/t", "/d", 5, {"mode": "fold"}, ("--max-model-len", "64"))
    command = launch.command(8123)
    assert json.loads(command[command.index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "model": "/d",
        "num_speculative_tokens": 5,
    }
    assert json.loads(command[command.index("--additional-config") + 1]) == {
        "eagle3_quarot": {"mode": "fold"}
    }
    assert command[-2:] == ["--max-model-len", "64"]
    assert "--speculative-config" not in PairLaunch("/t", None, 0, {}).command(8123)
