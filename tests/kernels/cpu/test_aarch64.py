# SPDX-License-Identifier: Apache-2.0
"""The torch-free kernels on aarch64: cross-compiled, run by an emulator of the processor."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vllm_eagle3_quarot.ops import native_build

DRIVER = Path(__file__).parent / "driver" / "check_rows.cpp"
COMPILER = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


@pytest.mark.skipif(
    COMPILER is None or EMULATOR is None,
    reason="Debian's g++-aarch64-linux-gnu and qemu-user-static are not installed",
)
def test_rows_on_aarch64(tmp_path: Path) -> None:
    """NEON's conversions of fp16 and vectors of four: against the formula in double."""
    folder = native_build.SOURCE_FOLDERS[-1]
    sources = [folder / name for name in ("kernels.cpp", "transform.cpp", "select.cpp")]
    program = tmp_path / "check_rows"
    flags = [*native_build.KERNEL_FLAGS, "-O1", "-static", f"-I{folder}"]
    define = "-DEAGLE3_QUAROT_ISA=generic"
    subprocess.run(
        [str(COMPILER), *flags, define, *map(str, sources), str(DRIVER), "-o", str(program)],
        check=True,
    )
    run = subprocess.run([str(EMULATOR), str(program)], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == ["checked generic"]
