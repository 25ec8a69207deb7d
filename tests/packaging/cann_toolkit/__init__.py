# SPDX-License-Identifier: Apache-2.0
"""A folder that ``csrc/ascend/CMakeLists.txt`` takes for a CANN toolkit.

It has the layout that CMake looks for and nothing of CANN's: see ``ascendc.cmake``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNEL_TESTS = HERE.parents[1] / "kernels"

#: What ``ascendc.cmake`` expects beside itself.
BESIDE = {
    "ascendc.cmake": HERE / "ascendc.cmake",
    "emulator": KERNEL_TESTS / "ascendc" / "emulator",
    "launch_emulated.cpp": KERNEL_TESTS / "ascendc" / "driver" / "launch_emulated.cpp",
    "launch_rows.cpp": KERNEL_TESTS / "npu_runtime" / "driver" / "launch_rows.cpp",
}

MODULES = Path("tools") / "tikcpp" / "ascendc_kernel_cmake"


def install(folder: Path) -> Path:
    """Make the toolkit at ``folder/ascend-toolkit`` and return that folder."""
    toolkit = folder / "ascend-toolkit"
    latest = toolkit / "latest"
    (latest / MODULES).mkdir(parents=True)
    for name, target in BESIDE.items():
        (latest / MODULES / name).symlink_to(target)
    (latest / "lib64").mkdir()
    # Linked by name only: what is in it comes from tests/kernels/npu_runtime/fake_cann.
    library = latest / "lib64" / "libascendcl.so"
    empty = ["g++", "-shared", "-x", "c++", "/dev/null", f"-Wl,-soname,{library.name}"]
    subprocess.run([*empty, "-o", library], check=True)
    (toolkit / "set_env.sh").write_text(f"export ASCEND_HOME_PATH={latest}\n")
    return toolkit
