# SPDX-License-Identifier: Apache-2.0
"""Loading the NPU kernels never stops a server, and says what runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from vllm_eagle3_quarot.ops import ascend


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ascend, "_loaded", None)
    yield


def test_without_the_library_plain_torch_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="vllm.eagle3_quarot"):
        backend = ascend.load_ascend(tmp_path)
    assert backend.kernel is None
    assert str(tmp_path / ascend.LIBRARY) in caplog.text
    assert "plain torch" in caplog.text


def test_a_library_that_does_not_load_is_named(tmp_path: Path) -> None:
    (tmp_path / ascend.LIBRARY).write_bytes(b"not a shared library")
    backend = ascend.load_ascend(tmp_path)
    assert backend.kernel is None
    assert "cannot be loaded" in backend.detail


def test_a_library_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    (tmp_path / ascend.LIBRARY).touch()
    assert ascend.load_ascend(tmp_path) is ascend.load_ascend(tmp_path)
    assert loaded == [str(tmp_path / ascend.LIBRARY)]
