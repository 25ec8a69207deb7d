# SPDX-License-Identifier: Apache-2.0
"""The flags and variables that a server gets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.serving import ServeOptions
from tools.serving.options import PYTHON_VARIABLE


def value_of(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_a_target_alone_gets_neither_speculation_nor_plugin_settings() -> None:
    command = ServeOptions(target=Path("/t")).command(8123)
    assert "--speculative-config" not in command
    assert "--additional-config" not in command
    assert value_of(command, "serve") == "/t"
    assert value_of(command, "--port") == "8123"


def test_draft_and_plugin_settings_are_json() -> None:
    options = ServeOptions(target=Path("/t"), draft=Path("/d d"), plugin={"mode": "off"})
    command = options.command(8123)
    assert json.loads(value_of(command, "--speculative-config")) == {
        "method": "eagle3",
        "model": "/d d",
        "num_speculative_tokens": 3,
    }
    assert json.loads(value_of(command, "--additional-config")) == {
        "eagle3_quarot": {"mode": "off"}
    }


def test_further_arguments_come_last_so_that_they_win() -> None:
    options = ServeOptions(target=Path("/t"), arguments=("--max-num-batched-tokens", "64"))
    assert options.command(8123)[-2:] == ["--max-num-batched-tokens", "64"]


def test_another_environment_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    assert ServeOptions(target=Path("/t")).command(8123)[0] == sys.executable
    monkeypatch.setenv(PYTHON_VARIABLE, "/other/bin/python")
    assert ServeOptions(target=Path("/t")).command(8123)[0] == "/other/bin/python"
    options = ServeOptions(target=Path("/t"), python="/third/bin/python")
    assert options.command(8123)[0] == "/third/bin/python"


def test_the_callers_environment_wins_over_defaults_and_the_servers_own_over_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    environment = ServeOptions(
        target=Path("/t"), environment={"HF_HUB_OFFLINE": "1"}
    ).full_environment()
    assert environment["OMP_NUM_THREADS"] == "7"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
