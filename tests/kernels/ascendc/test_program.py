# SPDX-License-Identifier: Apache-2.0
"""The harness tells a machine that can't start a program just now from one that never will."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import program
from tests.kernels.ascendc.harness.program import run_program


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A program of our own: `cat`."""
    found = shutil.which("cat")
    assert found is not None
    return Path(shutil.copy(found, tmp_path / "program"))


def test_a_program_whose_file_is_still_written_is_started_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "PAUSES_S", (0.2,) * 50)
    writer = copy.open("r+b")
    threading.Timer(0.5, writer.close).start()
    assert run_program([str(copy)], timeout_s=60, stdin="answer").stdout == "answer"


def test_a_file_that_stays_open_is_an_error(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PAUSES_S", (0.0,))
    with copy.open("r+b"), pytest.raises(OSError, match="Text file busy"):
        run_program([str(copy)], timeout_s=60, stdin="")


def test_a_missing_program_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "PAUSES_S", (1e6,))
    with pytest.raises(FileNotFoundError):
        run_program([str(tmp_path / "nothing")], timeout_s=60)
