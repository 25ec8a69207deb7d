# SPDX-License-Identifier: Apache-2.0
"""What a user can do wrong with the demo ends in one line on stderr and a non-zero exit code."""

from __future__ import annotations

import signal
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import psutil
import pytest

from tools.demo import __main__ as demo
from tools.demo import preflight
from tools.serving import ServingError


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if the demo gets as far as starting something."""
    monkeypatch.setattr(demo, "measure", lambda *_: pytest.fail("a server was started"))


@pytest.mark.usefixtures("no_server")
def test_a_missing_pair_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--pair", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"error: {tmp_path}/prompts.json is missing: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("sig", "exit_code", "line"),
    [
        (signal.SIGINT, 130, "interrupted; all servers are stopped\n"),
        (signal.SIGTERM, 143, "terminated; all servers are stopped\n"),
    ],
)
def test_a_signal_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sig: signal.Signals,
    exit_code: int,
    line: str,
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(demo, "_run", lambda *_: signal.raise_signal(sig))
    try:
        assert demo.main([]) == exit_code
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == line


def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        available = 2 * preflight.GIB

    monkeypatch.setattr(psutil, "virtual_memory", Small)
    with pytest.raises(ServingError, match=r"2\.0 GiB of memory are available"):
        preflight.check_memory()


@pytest.mark.parametrize(("limit", "refused"), [(2 * preflight.GIB, True), ("max", False)])
def test_a_containers_limit_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: object, refused: bool
) -> None:
    class Large:
        available = 64 * preflight.GIB

    monkeypatch.setattr(psutil, "virtual_memory", Large)
    monkeypatch.setattr(preflight, "CGROUP_LIMIT", tmp_path / "memory.max")
    preflight.CGROUP_LIMIT.write_text(f"{limit}\n", encoding="ascii")
    if refused:
        with pytest.raises(ServingError, match=r"2\.0 GiB of memory are available"):
            preflight.check_memory()
    else:
        preflight.check_memory()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("VLLM_PLUGINS", "ascend"), ("VLLM_EAGLE3_QUAROT_DISABLE", "1")],
)
def test_a_variable_that_switches_the_plugin_off_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(preflight, "version", lambda _: "0.23.0+cpu")
    monkeypatch.setattr(preflight, "entry_points", lambda **_: [preflight.PLUGIN])
    with pytest.raises(ServingError, match=variable):
        preflight.check_installation()


@pytest.mark.parametrize("missing", ["vLLM", "the plugin"])
def test_an_incomplete_environment_names_its_remedy(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def version(name: str) -> str:
        if missing == "vLLM":
            raise PackageNotFoundError(name)
        return "0.23.0+cpu"

    monkeypatch.setattr(preflight, "version", version)
    monkeypatch.setattr(preflight, "entry_points", lambda **_: [])
    with pytest.raises(ServingError, match=f"{missing} is not installed.*make venv"):
        preflight.check_installation()
