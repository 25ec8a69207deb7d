# SPDX-License-Identifier: Apache-2.0
"""Builds the fake CANN for the packages installed in this interpreter's environment.

One library, ``libfakecann.so``, has everything; each soname that a package asks for is an empty
library that depends on it, so that all of them share one state.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.kernels.ascendc.harness import compilation
from tests.kernels.npu_runtime.fake_cann import symbols

HERE = Path(__file__).resolve().parent
MAIN_LIBRARY = "libfakecann.so"


def build(folder: Path, packages: Sequence[str] = ("torch_npu",)) -> None:
    """Fill ``folder`` with the libraries that ``packages`` miss.

    Raises:
        ModuleNotFoundError: a package is not installed.
        compilation.CompileError: the runtime does not fit the installed torch_npu's headers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = symbols.missing_from(packages)
    headers = symbols.package_folder("torch_npu") / "include"
    version = _version(symbols.package_folder("torch_npu"))
    flags = ("-std=c++17", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror")
    objects = [
        compilation.Unit(HERE / "runtime.cpp", (), flags, (headers,), (version,)).compile(),
        compilation.Unit(HERE / "allocator_keys.cpp", (), flags).compile(),
    ]
    stubs = folder / "stubs.s"
    stubs.write_text(missing.assembly(symbols.defined_in_objects(objects)))
    objects.append(compilation.Unit(stubs).compile())
    main = compilation.link("libfakecann", objects, [f"-Wl,-soname,{MAIN_LIBRARY}"])
    shutil.copy(main, folder / MAIN_LIBRARY)
    for soname in sorted(missing.sonames):
        forward = (f"-Wl,-soname,{soname}", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN")
        shutil.copy(compilation.link(soname, [main], forward), folder / soname)


def _version(package: Path) -> str:
    return (package / "version.py").read_text()
