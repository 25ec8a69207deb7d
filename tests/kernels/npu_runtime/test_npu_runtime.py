# SPDX-License-Identifier: Apache-2.0
"""Runs ``on_npu/`` in the interpreter that has torch_npu."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.other_environment import interpreter_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
VARIABLE = "EAGLE3_QUAROT_NPU_VENV"
TIMEOUT_S = 900
"""Building the library takes a minute on two cores, the tests half of one."""


@pytest.fixture(scope="module")
def interpreter() -> Path:
    return interpreter_of(VARIABLE, ".venv-npu", "torch_npu", "test-npu", "the library")


# 0: an op's launch happens in the call. 1: torch_npu's own thread launches it later, the default.
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("task_queue", ("0", "1"))
def test_on_npu(interpreter: Path, task_queue: str) -> None:
    # --capture=sys leaves the file descriptors alone: the emulator ends the process when a rule of
    # the device is broken, and says which on stderr.
    # --confcutdir: the conftest of tests/ imports what only the main environment needs to have.
    options = ["-q", "--capture=sys", "-p", "no:cacheprovider", f"--confcutdir={HERE}"]
    done = subprocess.run(
        [str(interpreter), "-m", "pytest", *options, str(HERE / "on_npu")],
        cwd=ROOT,
        env={**os.environ, "TASK_QUEUE_ENABLE": task_queue},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        report = f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"the tests ended with {done.returncode}:\n{report}", pytrace=False)
