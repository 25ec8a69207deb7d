# SPDX-License-Identifier: Apache-2.0
"""Runs ``in_host/`` in the environment with vllm-ascend: imports and draft loading, no engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ascend.device.start import FOLDER_VARIABLE
from tests.ascend.jobs import ENVIRONMENT
from tests.support.engine_process import ROOT

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600


@pytest.mark.parametrize("ours", ("first", "last"))
def test_in_host(interpreter: Path, fake_cann: Path, ours: str) -> None:
    """vLLM loads plugins in the order of folders on the path, which nobody defines."""
    options = ["-q", "--capture=sys", "-p", "no:cacheprovider", f"--confcutdir={HERE / 'in_host'}"]
    done = subprocess.run(
        [str(interpreter), "-m", "pytest", *options, str(HERE / "in_host")],
        cwd=ROOT,
        env={
            **os.environ,
            **ENVIRONMENT,
            FOLDER_VARIABLE: str(fake_cann),
            "EAGLE3_QUAROT_PLUGIN_ORDER": ours,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        report = f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"the tests ended with {done.returncode}:\n{report}", pytrace=False)
