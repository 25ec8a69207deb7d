# SPDX-License-Identifier: Apache-2.0
"""The torch-free kernels of every instruction set, compiled with ASan and UBSan.

The driver beside this file compares them with the formula in double, with one another bit for bit,
and all 65536 values of bf16 and fp16 with their definition, in buffers without a spare byte.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.ops import native_build

DRIVER = Path(__file__).parent / "driver" / "check_rows.cpp"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def test_rows_under_sanitizers(tmp_path: Path, native: ops.Backend) -> None:
    compiler = native_build.find_compiler()
    objects = native_build.compile_kernels(compiler, tmp_path, *SANITIZERS)
    program = tmp_path / "check_rows"
    include = f"-I{native_build.SOURCE_FOLDERS[-1]}"
    subprocess.run(
        [*compiler, "-std=c++17", *SANITIZERS, include, DRIVER, *objects, "-o", program], check=True
    )
    run = subprocess.run([program], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    checked = [line.removeprefix("checked ") for line in run.stdout.splitlines()]
    assert checked[0] == "generic"
    assert checked[-1] == native.kernel, "the set that runs here was not among the checked ones"
