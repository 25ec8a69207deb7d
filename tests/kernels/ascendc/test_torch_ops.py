# SPDX-License-Identifier: Apache-2.0
"""The NPU's torch binding with the emulated kernels under it, against the composite reference.

The binding is compiled for the CPU's dispatch key and launches the kernel source on emulated cores:
checks, path choice, argument order, strides and the matmul path are the ones the NPU gets. What is
replaced is row_launch_npu.cpp: stream and core count.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.kernels.ascendc.harness import build
from tests.kernels.ascendc.harness.compilation import CompileError

CHECKS = (
    "unrotate", "concat", "norm", "embedding", "rotate", "changed_factor", "refusals",
)  # fmt: skip
STRUCTURES_AND_DTYPES = 7 * 3


@pytest.fixture(scope="module")
def outcomes(compiler: str) -> list[dict[str, str | bool]]:
    pytest.importorskip("torch", reason="the binding is a torch extension")
    try:
        library = build.torch_library()
    except CompileError as error:
        pytest.fail(f"the binding does not compile:\n{error}", pytrace=False)
    # A process of its own: a library may be loaded once, and the emulator ends its process.
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ascendc.harness.torch_ops_check", str(library)],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=build.ROOT,
    )
    if done.returncode != 0:
        pytest.fail(
            f"the process ended with {done.returncode}:\n{done.stderr[-4000:]}", pytrace=False
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("check", CHECKS)
def test_op(outcomes: list[dict[str, str | bool]], check: str) -> None:
    mine = [entry for entry in outcomes if str(entry["name"]).startswith(check + " ")]
    assert len(mine) == STRUCTURES_AND_DTYPES
    failures = [f"{entry['name']}: {entry['detail']}" for entry in mine if not entry["passed"]]
    assert not failures, "\n".join(failures)
