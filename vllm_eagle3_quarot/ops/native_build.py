# SPDX-License-Identifier: Apache-2.0
"""Compiling ``csrc/cpu`` against the installed torch, into a cache folder shared by processes.

A wheel may bring the library as well (``hatch_build.py`` calls :func:`build`); it is used when it
was made from these sources for this torch, which its name says.

The compiler is called directly: a few small files, no build system to depend on. The kernels
themselves know nothing of torch and are compiled once per instruction set; the library chooses at
run time, so one cached file serves every processor of an architecture.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch

logger = logging.getLogger("vllm.eagle3_quarot")

PACKAGE = Path(__file__).resolve().parents[1]

#: Where the sources lie: inside an installed wheel, or beside the package in a checkout.
SOURCE_FOLDERS = (PACKAGE / "_csrc" / "cpu", PACKAGE.parent / "csrc" / "cpu")

#: Where a wheel keeps what was compiled when it was built.
BROUGHT = PACKAGE / "_lib"

#: Seconds for one compiler call, and for another process to finish its build.
COMPILER_TIMEOUT = 600.0
LOCK_TIMEOUT = 900.0

#: Instruction sets and the flags that allow them. "generic" is what every compiler gives.
INSTRUCTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx512": (
            "-mavx512f",
            "-mavx512bw",
            "-mavx512dq",
            "-mavx512vl",
            "-mavx2",
            "-mfma",
            "-mf16c",
        ),
        "avx2": ("-mavx2", "-mfma", "-mf16c"),
    },
}

KERNEL_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC", "-fvisibility=hidden")
#: The files with torch's headers; their code is glue, so time goes into parsing, not optimising.
TORCH_SOURCES = ("binding.cpp", "checks.cpp")


class NativeBuildError(Exception):
    """There is no native library, and the message says why."""


def library_path() -> Path:
    """The library for these sources, this torch and this architecture; it may not exist.

    The one that the wheel brought, else the one in the cache folder.

    Raises:
        NativeBuildError: the package came without sources.
    """
    name = library_name()
    brought = BROUGHT / name
    if is_intact(brought):
        return brought
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "vllm-eagle3-quarot" / name


def library_name() -> str:
    """File name of the library for these sources, this torch and this architecture.

    Raises:
        NativeBuildError: the package came without sources.
    """
    folder = _sources()
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    digest.update(f"{torch.__version__} {torch._C._GLIBCXX_USE_CXX11_ABI}".encode())
    return f"cpu-{platform.machine()}-torch{torch.__version__}-{digest.hexdigest()[:16]}.so"


def is_intact(path: Path) -> bool:
    """True when the library is there and has the contents it was built with.

    The system kills a process that maps a library cut short (a full disk, a crash), so this has to
    be known before it is opened.
    """
    try:
        return checksum_path(path).read_bytes() == _checksum(path)
    except OSError:
        return False


def checksum_path(path: Path) -> Path:
    """The file beside a library that says what its contents are."""
    return path.with_suffix(".sha256")


def build(path: Path) -> None:
    """Compile the library to ``path``, or wait for another process that does.

    Raises:
        NativeBuildError: no compiler, one that fails, or another process that takes too long.
        OSError: the cache folder cannot be written.
    """
    compiler = find_compiler()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        if is_intact(path):
            return
        start = time.monotonic()
        prefix = f"build-{path.stem}-"
        for left_over in path.parent.glob(f"{prefix}*"):  # of a process killed while it built
            shutil.rmtree(left_over, ignore_errors=True)
        # Beside its destination: a rename within one file system is atomic, so nobody ever loads a
        # half-written library, locks or not.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=prefix) as folder:
            built = _compile(compiler, Path(folder))
            checksum = Path(folder) / "checksum"
            checksum.write_bytes(_checksum(built))
            os.replace(built, path)
            os.replace(checksum, checksum_path(path))
        logger.debug("eagle3_quarot: built %s in %.0f s", path, time.monotonic() - start)


def find_compiler() -> list[str]:
    """The C++ compiler as the start of a command line: ``CXX``, or the first known one in PATH.

    Raises:
        NativeBuildError: there is none.
    """
    chosen = os.environ.get("CXX")
    for candidate in [chosen] if chosen else ["c++", "g++", "clang++"]:
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    raise NativeBuildError(
        f"CXX is {chosen!r}, which is no program" if chosen else "no C++ compiler in PATH"
    )


def compile_kernels(compiler: list[str], folder: Path, *more_flags: str) -> list[Path]:
    """Compile the part that knows no torch into ``folder``; return the object files.

    Raises:
        NativeBuildError: the compiler fails.
    """
    return _compile_units(compiler, folder, _kernel_units(more_flags))


def _checksum(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).hexdigest().encode()


def _sources() -> Path:
    for folder in SOURCE_FOLDERS:
        if (folder / "binding.cpp").is_file():
            return folder
    raise NativeBuildError("the package was installed without its C++ sources")


#: A file to compile: source, name of the object file, flags.
_Unit = tuple[str, str, tuple[str, ...]]


def _kernel_units(more_flags: tuple[str, ...] = ()) -> list[_Unit]:
    common = (*KERNEL_FLAGS, *more_flags)
    sets = {**INSTRUCTION_SETS.get(platform.machine(), {}), "generic": ()}
    units: list[_Unit] = [
        ("kernels.cpp", f"kernels-{name}.o", (*common, *flags, f"-DEAGLE3_QUAROT_ISA={name}"))
        for name, flags in sets.items()
    ]
    return [*units, *((name, f"{name}.o", common) for name in ("transform.cpp", "select.cpp"))]


def _compile_units(compiler: list[str], folder: Path, units: list[_Unit]) -> list[Path]:
    sources = _sources()
    objects = [folder / target for _, target, _ in units]
    commands = [
        [*compiler, *flags, "-c", str(sources / source), "-o", str(folder / target)]
        for source, target, flags in units
    ]
    # Threads that only wait for compilers; as many compilers as there are processors.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(_run, commands):
            pass
    return objects


def _compile(compiler: list[str], folder: Path) -> Path:
    torch_units: list[_Unit] = [(name, f"{name}.o", _torch_flags()) for name in TORCH_SOURCES]
    objects = _compile_units(compiler, folder, torch_units + _kernel_units())
    library = folder / "library.so"
    # No OpenMP library is named: the symbols bind to the one that torch has loaded. A second one
    # would bring a second pool of threads.
    folder_of_torch = f"-L{Path(torch.__file__).parent / 'lib'}"
    links = [folder_of_torch, "-ltorch_cpu", "-lc10"]
    _run([*compiler, "-shared", *map(str, objects), "-o", str(library), *links])
    return library


def _torch_flags() -> tuple[str, ...]:
    include = Path(torch.__file__).parent / "include"
    # torch's headers ask for C++20 since 2.12; older compilers and torches go together.
    modern = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)
    return (
        "-std=c++20" if modern else "-std=c++17",
        "-O1",
        "-fPIC",
        "-fopenmp",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        "-isystem",
        str(include),
        "-isystem",
        str(include / "torch" / "csrc" / "api" / "include"),
    )


def _run(command: list[str]) -> None:
    try:
        # Messages in English, since one is looked for, and in bytes that any locale can show.
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=COMPILER_TIMEOUT,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.CalledProcessError as error:
        logger.debug("eagle3_quarot: %s\n%s", shlex.join(command), error.stderr)
        lines = [line for line in error.stderr.splitlines() if "error" in line] or ["no message"]
        raise NativeBuildError(f"{command[0]} failed: {lines[0].strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise NativeBuildError(f"{command[0]} took over {COMPILER_TIMEOUT:.0f} s") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``; the system releases it even when this process is killed."""
    with path.open("w") as file:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NativeBuildError(
                        f"another process holds {path} for over {LOCK_TIMEOUT:.0f} s"
                    ) from None
                time.sleep(0.2)
        yield
