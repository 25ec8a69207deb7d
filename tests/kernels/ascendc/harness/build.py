# SPDX-License-Identifier: Apache-2.0
"""What the kernel tests build from the AscendC kernels, their host side and the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kernels.ascendc.harness.compilation import Unit, link

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[2]
KERNELS = ROOT / "csrc" / "ascend" / "op_kernel"
HOST = ROOT / "csrc" / "ascend" / "op_host"
INCLUDE = ROOT / "csrc" / "include"
EMULATOR = HERE / "emulator"
DRIVER = HERE / "driver"

# The kernels must pass with conversions as errors: strides and repeat counts are 8 and 16 bits
# wide on the device, and a silent truncation would be a wrong address.
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMMON = ["-std=c++17", "-DEAGLE3_QUAROT_HOST_EMULATION"]
OPTIMISED = ["-O1", "-g1"]


def executable(
    *, kernels: Path = KERNELS, flags: Sequence[str] = (*OPTIMISED, *SANITIZERS, *WARNINGS)
) -> Path:
    """The driver linked with the kernels in ``kernels``.

    Raises:
        CompileError: the sources do not compile.
    """
    units = [
        _unit(kernels / "rotate_rows.cpp", [INCLUDE, kernels, EMULATOR], flags),
        _unit(HOST / "row_tiling.cpp", [INCLUDE, KERNELS], flags),
        _unit(DRIVER / "job.cpp", [INCLUDE, KERNELS], flags),
        _unit(DRIVER / "run_rows.cpp", [INCLUDE, KERNELS, HOST, EMULATOR], flags),
    ]
    return _program("run_rows", units)


def probes() -> Path:
    """The executable of the emulator's rule probes, with ASan and UBSan."""
    flags = ("-O0", *SANITIZERS, *WARNINGS)
    return _program("probe_rules", [_unit(DRIVER / "probe_rules.cpp", [EMULATOR], flags)])


def choices() -> Path:
    """The executable that prints tiling and path choice, with ASan and UBSan."""
    flags = ("-O0", *SANITIZERS, *WARNINGS)
    includes = [INCLUDE, KERNELS, HOST]
    sources = [DRIVER / "print_choice.cpp", HOST / "row_tiling.cpp", HOST / "path_choice.cpp"]
    return _program("print_choice", [_unit(source, includes, flags) for source in sources])


def torch_library() -> Path:
    """The torch binding over the emulated kernels, as a library that serves CPU tensors.

    Without sanitizers: it is loaded into an ordinary Python process.

    Raises:
        CompileError: the sources do not compile.
    """
    import torch
    from torch.utils import cpp_extension

    abi = int(torch.compiled_with_cxx11_abi())
    flags = ("-std=c++20", "-O0", "-w", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
    binding = (
        *COMMON,
        *flags,
        "-DEAGLE3_QUAROT_DISPATCH_KEY=CPU",
        f"-DTORCH_VERSION_TAG={torch.__version__}",
    )
    torch_headers = tuple(map(Path, cpp_extension.include_paths()))
    host = (INCLUDE, KERNELS, HOST)
    units = [
        *(
            Unit(HOST / name, host, binding, torch_headers, (torch.__version__,))
            for name in ("binding.cpp", "rotation_tensors.cpp", "matmul_path.cpp")
        ),
        _unit(KERNELS / "rotate_rows.cpp", [INCLUDE, KERNELS, EMULATOR], flags),
        _unit(DRIVER / "launch_emulated.cpp", [*host, EMULATOR], flags),
        _unit(HOST / "row_tiling.cpp", host, flags),
        _unit(HOST / "path_choice.cpp", host, flags),
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(Unit.compile, units))
    folder = Path(torch.__file__).parent / "lib"
    where = (f"-L{folder}", f"-Wl,-rpath,{folder}")
    return link("torch_ops", objects, where, ("-lc10", "-ltorch_cpu", "-ltorch"))


def _unit(source: Path, headers: Sequence[Path], flags: Sequence[str]) -> Unit:
    return Unit(source, tuple(headers), (*COMMON, *flags))


def _program(name: str, units: Sequence[Unit]) -> Path:
    sanitizers = [flag for flag in units[0].flags if flag.startswith("-fsanitize")]
    return link(name, [unit.compile() for unit in units], sanitizers, shared=False)
