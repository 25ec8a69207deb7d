# SPDX-License-Identifier: Apache-2.0
"""Compiles the AscendC kernels and the emulator with g++ into an executable.

Objects are cached by the content of everything they may include, so a second run compiles
nothing and a mutant recompiles only the kernels.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def cache_folder() -> Path:
    """Folder for objects: EAGLE3_QUAROT_BUILD_CACHE, or one under the system's temporary folder."""
    configured = os.environ.get("EAGLE3_QUAROT_BUILD_CACHE")
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    folder = (
        Path(configured)
        if configured
        else Path(tempfile.gettempdir()) / f"eagle3-quarot-ascendc-{user}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(folders: Sequence[Path], extra: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join(extra).encode())
    for folder in folders:
        for path in sorted(folder.glob("*")):
            if path.suffix in {".h", ".cpp"}:
                digest.update(path.name.encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _compile(source: Path, includes: Sequence[Path], flags: Sequence[str]) -> Path:
    flags = [*COMMON, *flags]
    target = cache_folder() / f"{source.stem}-{_digest([*includes, source.parent], flags)}.o"
    if target.exists():
        return target
    scratch = target.with_suffix(f".{os.getpid()}.tmp")
    command = ["g++", *flags, *(f"-I{folder}" for folder in includes), "-c", str(source)]
    subprocess.run([*command, "-o", str(scratch)], check=True, text=True, capture_output=True)
    scratch.replace(target)
    return target


def _link(name: str, objects: Sequence[Path], flags: Sequence[str]) -> Path:
    digest = hashlib.sha256(" ".join(path.name for path in objects).encode()).hexdigest()[:20]
    target = cache_folder() / f"{name}-{digest}"
    if not target.exists():
        scratch = target.with_suffix(f".{os.getpid()}.tmp")
        link = [flag for flag in flags if flag.startswith(("-fsanitize", "-shared"))]
        libraries = [flag for flag in flags if flag.startswith(("-l", "-L", "-Wl,"))]
        command = ["g++", *link, *map(str, objects), *libraries, "-o", str(scratch)]
        subprocess.run(command, check=True, text=True, capture_output=True)
        scratch.replace(target)
    return target


def executable(
    *, kernels: Path = KERNELS, flags: Sequence[str] = (*OPTIMISED, *SANITIZERS, *WARNINGS)
) -> Path:
    """The driver linked with the kernels in ``kernels``.

    Raises:
        subprocess.CalledProcessError: the sources do not compile; ``stderr`` says why.
    """
    objects = [
        _compile(kernels / "rotate_rows.cpp", [INCLUDE, kernels, EMULATOR], flags),
        _compile(HOST / "row_tiling.cpp", [INCLUDE, KERNELS], flags),
        _compile(DRIVER / "job.cpp", [INCLUDE, KERNELS], flags),
        _compile(DRIVER / "run_rows.cpp", [INCLUDE, KERNELS, HOST, EMULATOR], flags),
    ]
    return _link("run_rows", objects, flags)


def probes() -> Path:
    """The executable of the emulator's rule probes, with ASan and UBSan."""
    flags = ("-O0", *SANITIZERS, *WARNINGS)
    return _link("probe_rules", [_compile(DRIVER / "probe_rules.cpp", [EMULATOR], flags)], flags)


def choices() -> Path:
    """The executable that prints tiling and path choice, with ASan and UBSan."""
    flags = ("-O0", *SANITIZERS, *WARNINGS)
    includes = [INCLUDE, KERNELS, HOST]
    sources = [DRIVER / "print_choice.cpp", HOST / "row_tiling.cpp", HOST / "path_choice.cpp"]
    return _link("print_choice", [_compile(source, includes, flags) for source in sources], flags)


def torch_library() -> Path:
    """The torch binding over the emulated kernels, as a library that serves CPU tensors.

    Without sanitizers: it is loaded into an ordinary Python process.
    """
    import torch
    from torch.utils import cpp_extension

    abi = int(torch.compiled_with_cxx11_abi())
    flags = ("-std=c++20", "-O0", "-w", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
    binding = (
        *flags,
        "-DEAGLE3_QUAROT_DISPATCH_KEY=CPU",
        f"-DTORCH_VERSION_TAG={torch.__version__}",
    )
    torch_headers = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    host = [INCLUDE, KERNELS, HOST]
    units: list[tuple[Path, list[Path], tuple[str, ...]]] = [
        (HOST / name, host, (*binding, *torch_headers))
        for name in ("binding.cpp", "rotation_tensors.cpp", "matmul_path.cpp")
    ]
    units += [
        (KERNELS / "rotate_rows.cpp", [INCLUDE, KERNELS, EMULATOR], flags),
        (DRIVER / "launch_emulated.cpp", [*host, EMULATOR], flags),
        (HOST / "row_tiling.cpp", host, flags),
        (HOST / "path_choice.cpp", host, flags),
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(lambda unit: _compile(*unit), units))
    folder = Path(torch.__file__).parent / "lib"
    libraries = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-lc10", "-ltorch_cpu", "-ltorch")
    return _link("torch_ops", objects, ("-shared", *libraries))
