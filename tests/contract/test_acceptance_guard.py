# SPDX-License-Identifier: Apache-2.0
"""The acceptance guard as vLLM finds, builds and feeds it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace

import pytest
from vllm.v1.metrics.loggers import load_stat_logger_plugin_factories
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from tests.support.checkpoints import write_target
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.integrations.acceptance_guard import AcceptanceGuard


def configuration(method: str | None = "eagle3", **guard: float) -> SimpleNamespace:
    """The part of vLLM's configuration that the guard reads."""
    speculation = SimpleNamespace(method=method, draft_model_config=SimpleNamespace(model="/d"))
    return SimpleNamespace(
        speculative_config=speculation if method else None,
        model_config=SimpleNamespace(model="/t"),
        additional_config={"eagle3_quarot": {"guard": guard}},
    )


def step(drafts: int, accepted: int) -> SchedulerStats:
    """Counts of ``drafts`` drafts of which the first ``accepted`` had one token accepted."""
    counts = SpecDecodingStats.new(3)
    for index in range(drafts):
        counts.observe_draft(3, int(index < accepted))
    return SchedulerStats(spec_decoding_stats=counts)


@pytest.fixture
def log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    caplog.set_level(logging.INFO, "vllm.eagle3_quarot")
    return caplog


def test_vllm_loads_it_from_the_entry_point() -> None:
    assert AcceptanceGuard in load_stat_logger_plugin_factories()


def test_warns_and_tells_the_recovery(log: pytest.LogCaptureFixture) -> None:
    guard = AcceptanceGuard(configuration(min_acceptance=0.1, after_drafts=20), 1)
    for _ in range(6):
        guard.record(step(10, 0), None)
    assert (
        "engine 1 accepted the draft's first token in only 0.0 % of the last 20" in log.messages[0]
    )
    assert log.messages[0].endswith("eagle3-quarot doctor --target /t --draft /d")
    guard.record(step(20, 15), None)
    assert "again, in 75.0 % of the last 20 drafts" in log.messages[1]


def test_a_step_costs_two_calls() -> None:
    """The guard is called once per engine step, in the process that also talks to clients."""
    guard, counts = AcceptanceGuard(configuration(after_drafts=10**9)), step(64, 32)
    called: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        guard.record(counts, None)
    finally:
        sys.setprofile(None)
    assert called[:2] == ["record", "add"]
    assert called[2:] in ([], [test_a_step_costs_two_calls.__name__])  # switching the profile off


def test_steps_without_speculation_are_not_counted(log: pytest.LogCaptureFixture) -> None:
    guard = AcceptanceGuard(configuration(after_drafts=1))
    guard.record(None, None)
    guard.record(SchedulerStats(), None)
    guard.log()
    guard.log_engine_initialized()
    assert log.messages == []


@pytest.mark.parametrize(
    "config",
    [
        configuration(method=None),
        configuration(method="ngram"),
        configuration(min_acceptance=0, after_drafts=1),
        configuration(no_such_key=1),
    ],
    ids=["no speculation", "another method", "switched off", "settings that the loader refuses"],
)
def test_inert(config: SimpleNamespace, log: pytest.LogCaptureFixture) -> None:
    guard = AcceptanceGuard(config)
    guard.record(step(5000, 0), None)
    assert log.messages == []


def test_inert_when_the_plugin_is_disabled(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_EAGLE3_QUAROT_DISABLE", "1")
    AcceptanceGuard(configuration(after_drafts=1)).record(step(10, 0), None)
    assert log.messages == []


def other_method(target: Path, method: str, **settings: str) -> SimpleNamespace:
    config = configuration(method=method)
    config.model_config = SimpleNamespace(model=str(target), revision=None)
    config.load_config = SimpleNamespace(download_dir=None)
    config.additional_config = {"eagle3_quarot": settings}
    return config


@pytest.mark.parametrize("method", ["dflash", "dspark", "medusa", "eagle"])
@pytest.mark.parametrize("sidecar", [True, False])
def test_rotated_target_with_a_method_that_is_not_corrected(
    tmp_path: Path, log: pytest.LogCaptureFixture, method: str, sidecar: bool
) -> None:
    target = write_target(tmp_path / "target", hadamard_rotation(64), sidecar=sidecar, optional={})
    config = other_method(target, method)
    for engine in range(2):
        AcceptanceGuard(config, engine).record(step(5000, 0), None)
    (line,) = log.messages
    for part in (
        str(target),
        f"does not correct method '{method}'",
        "rate near 0",
        "use an Eagle3",
    ):
        assert part in line


def test_such_a_method_where_there_is_nothing_to_say(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    rotated = write_target(tmp_path / "rotated", hadamard_rotation(64))
    AcceptanceGuard(other_method(rotated, "medusa", mode="off"))
    AcceptanceGuard(other_method(rotated, "ngram"))
    plain = write_target(tmp_path / "plain", None, hidden=64)
    AcceptanceGuard(other_method(plain, "medusa"))
    (plain / "model.safetensors").write_bytes(b"not a checkpoint")
    AcceptanceGuard(other_method(plain, "medusa"))
    assert log.messages == []
