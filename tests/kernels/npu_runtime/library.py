# SPDX-License-Identifier: Apache-2.0
"""Builds the product's NPU library for the fake runtime.

``csrc/ascend`` is compiled unmodified: the binding for the dispatch key PrivateUse1, the launch
through torch_npu's ``OpCommand``, and the kernel, with the emulator in the place of CANN's headers.
Only the launch statement itself comes from here (``driver/launch_rows.cpp``).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils import cpp_extension

from tests.kernels.ascendc.harness import compilation
from tests.kernels.ascendc.harness.build import DRIVER, EMULATOR, HOST, INCLUDE, KERNELS
from tests.kernels.npu_runtime.fake_cann.symbols import package_folder

HERE = Path(__file__).resolve().parent
#: Host sources that include torch's headers, and those that do not.
TORCH_SOURCES = ("binding.cpp", "rotation_tensors.cpp", "matmul_path.cpp", "row_launch_npu.cpp")
PLAIN_SOURCES = ("row_tiling.cpp", "path_choice.cpp")
# The language standard of csrc/ascend/CMakeLists.txt.
COMMON = ("-std=c++17", "-O1", "-fPIC", "-w", "-DEAGLE3_QUAROT_HOST_EMULATION")


def build() -> Path:
    """Return the library, built for the torch and torch_npu of this interpreter.

    Raises:
        compilation.CompileError: the sources do not compile.
    """
    torch_npu = package_folder("torch_npu")
    versions = (torch.__version__, (torch_npu / "version.py").read_text())
    foreign = (*map(Path, cpp_extension.include_paths()), torch_npu / "include")
    host = (INCLUDE, KERNELS, HOST)
    abi = int(torch.compiled_with_cxx11_abi())
    with_torch = (*COMMON, f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
    # The emulator's driver has the device of the CPU tests in one file: core count and launch. The
    # launch is wanted under another name, since both functions exist in row_launch_npu.cpp.
    renamed = ("-DEnqueueRows=RunEmulatedCores", "-DVectorCores=EmulatedVectorCores")
    emulator = (*host, EMULATOR)
    units = [
        *(
            compilation.Unit(HOST / name, host, with_torch, foreign, versions)
            for name in TORCH_SOURCES
        ),
        *(compilation.Unit(HOST / name, host, COMMON) for name in PLAIN_SOURCES),
        compilation.Unit(KERNELS / "rotate_rows.cpp", (INCLUDE, KERNELS, EMULATOR), COMMON),
        compilation.Unit(DRIVER / "launch_emulated.cpp", emulator, (*COMMON, *renamed)),
        compilation.Unit(HERE / "driver" / "launch_rows.cpp", host, COMMON),
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(compilation.Unit.compile, units))
    folders = (Path(torch.__file__).parent / "lib", torch_npu / "lib")
    return compilation.link(
        "eagle3_quarot_npu",
        objects,
        # torch_npu's own libraries want CANN's, which are only there when this one is loaded.
        [
            "-Wl,--allow-shlib-undefined",
            *(option for path in folders for option in (f"-L{path}", f"-Wl,-rpath,{path}")),
        ],
        ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_npu"],
    )
