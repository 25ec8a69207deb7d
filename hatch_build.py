# SPDX-License-Identifier: Apache-2.0
"""Puts compiled kernels into a wheel when ``EAGLE3_QUAROT_NATIVE`` asks for them.

By default the wheel is ``py3-none-any``: it has no compiled code, brings the sources of the CPU
kernels, and compiles them where they are first used. ``EAGLE3_QUAROT_NATIVE`` names back ends,
``cpu``, ``ascend`` or both with a comma between. Each is compiled against the torch (and the
torch_npu and CANN) of the building environment, so no build isolation::

    EAGLE3_QUAROT_NATIVE=cpu python -m build --wheel --no-isolation
    EAGLE3_QUAROT_NATIVE=ascend pip install --no-build-isolation .

What was asked for and cannot be built is an error, never a wheel without it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "EAGLE3_QUAROT_NATIVE"

#: Where the package looks for them: ops/native_build.py and ops/ascend.py.
DESTINATION = "vllm_eagle3_quarot/_lib"

ASCEND_LIBRARIES = ("libeagle3_quarot_ascend.so", "libeagle3_quarot_ascend_kernels.so")

NO_ISOLATION = "build without isolation (pip install --no-build-isolation, python -m build -n)"


class CannotBuild(Exception):
    """A back end that was asked for cannot be compiled here; the message says why."""


class NativeLibraries(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook that hatchling runs for every wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile what is asked for and hand the files to the wheel."""
        wanted = requested(os.environ.get(VARIABLE, ""))
        if not wanted:
            return
        if version == "editable":
            raise CannotBuild(f"{VARIABLE}: an editable installation has no compiled kernels")
        # torch would import torch_npu, which fails without a driver: in a container being built.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        self._scratch = Path(tempfile.mkdtemp(prefix="eagle3-quarot-"))
        for name in wanted:
            build = BACK_ENDS[name]
            for library in build(Path(self.root), self._scratch / name):
                build_data["force_include"][str(library)] = f"{DESTINATION}/{library.name}"
        build_data["pure_python"] = False
        # Nothing in them depends on the Python release: they are loaded by torch. No manylinux tag,
        # because they want the torch that they were built with.
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel has it."""
        if hasattr(self, "_scratch"):
            shutil.rmtree(self._scratch, ignore_errors=True)


def requested(value: str) -> list[str]:
    """The back ends that ``EAGLE3_QUAROT_NATIVE`` names.

    Raises:
        CannotBuild: one of them is not known.
    """
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in BACK_ENDS]
    if unknown:
        raise CannotBuild(
            f"{VARIABLE}={value!r} names {', '.join(unknown)}; known are {', '.join(BACK_ENDS)}"
        )
    return names


def platform_tag() -> str:
    """The last part of the wheel's name, e.g. ``linux_x86_64``."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def build_cpu(root: Path, folder: Path) -> list[Path]:
    """Compile ``csrc/cpu`` with the package's own code; return the library and its checksum.

    Raises:
        CannotBuild: no torch, no compiler, or one that fails.
    """
    try:
        native_build = _module(root / "vllm_eagle3_quarot" / "ops" / "native_build.py")
    except ImportError as error:
        raise CannotBuild(f"{VARIABLE}=cpu needs torch: {error}; {NO_ISOLATION}") from error
    library: Path = folder / native_build.library_name()
    try:
        native_build.build(library)
    except native_build.NativeBuildError as error:
        raise CannotBuild(f"{VARIABLE}=cpu: {error}") from error
    return [library, native_build.checksum_path(library)]


def build_ascend(root: Path, folder: Path) -> list[Path]:
    """Compile ``csrc/ascend`` with CMake against CANN; return the libraries.

    Raises:
        CannotBuild: no CMake, no CANN toolkit, no torch_npu, or a step that fails.
    """
    cmake = shutil.which("cmake")
    if cmake is None:
        raise CannotBuild(f"{VARIABLE}=ascend needs cmake, which is not in PATH")
    build, prefix = folder / "build", folder / "lib"
    python = f"-DPython_EXECUTABLE={sys.executable}"
    said = _run([cmake, "-S", str(root / "csrc" / "ascend"), "-B", str(build), python])
    reasons = [line[3:] for line in said.splitlines() if "NPU kernels are not built" in line]
    if reasons:
        raise CannotBuild(
            f"{VARIABLE}=ascend: {reasons[0]}. Source CANN's set_env.sh; {NO_ISOLATION}"
        )
    _run([cmake, "--build", str(build), "--parallel", str(len(os.sched_getaffinity(0)))])
    _run([cmake, "--install", str(build), "--prefix", str(prefix)])
    libraries = [prefix / name for name in ASCEND_LIBRARIES]
    for library in libraries:
        if not library.is_file():
            raise CannotBuild(f"{VARIABLE}=ascend: CMake has installed no {library.name}")
    return libraries


BACK_ENDS = {"cpu": build_cpu, "ascend": build_ascend}


def _module(path: Path) -> Any:
    """The module in ``path``, without its package, which would want all dependencies."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise CannotBuild(f"{VARIABLE}=ascend: {' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout
