# SPDX-License-Identifier: Apache-2.0
"""What an installed package wants from CANN: shared libraries and symbols that are not there.

Only the symbol tables of the package's extension libraries are read (``nm`` and ``readelf`` of
binutils). Functions that are looked up by name at run time are in no table; torch_npu treats a
missing one as an unsupported feature, so they are left missing unless ``runtime.cpp`` has them.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: The object files' names for vtables and type information: data, not functions.
DATA_PREFIXES = ("_ZTV", "_ZTI", "_ZTS", "_ZTT")
#: Resolved by the interpreter, the C library and the compiler's run time.
FOREIGN_PREFIXES = ("Py", "_Py", "__", "_ITM_")
RETURN_ZERO = {"x86_64": "xorl %eax, %eax\n ret", "aarch64": "mov x0, #0\n ret"}
VTABLE_BYTES = 256  # room for the largest vtable that is only pointed to


@dataclass(frozen=True)
class Missing:
    """Sonames that nothing on this machine provides, and symbols that nothing defines."""

    sonames: frozenset[str]
    symbols: frozenset[str]

    def assembly(self, defined_elsewhere: Iterable[str]) -> str:
        """Assembly of a stub for every symbol: functions return 0, data is zero.

        Raises:
            KeyError: no stub is written for this machine's instruction set.
        """
        body = RETURN_ZERO[platform.machine()]
        symbols = sorted(self.symbols - set(defined_elsewhere))
        functions = [name for name in symbols if not name.startswith(DATA_PREFIXES)]
        lines = ['.section .note.GNU-stack,"",%progbits', ".text"]
        for name in functions:
            lines += [f".globl {name}", f".type {name}, %function", f"{name}: {body}"]
        lines += [".data", ".balign 16"]
        for name in sorted(set(symbols) - set(functions)):
            lines += [f".globl {name}", f".type {name}, %object", f".size {name}, {VTABLE_BYTES}"]
            lines += [f"{name}: .zero {VTABLE_BYTES}"]
        return "\n".join(lines) + "\n"


def package_folder(name: str) -> Path:
    """Where a package is installed, without importing it.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"package {name} is not installed")
    return Path(spec.submodule_search_locations[0])


def missing_from(packages: Iterable[str]) -> Missing:
    """What the extensions of ``packages`` want and neither they, torch nor the system have."""
    libraries = [
        path
        for package in packages
        for path in package_folder(package).rglob("*.so*")
        if path.is_file() and not path.is_symlink()
    ]
    torch_libraries = list((package_folder("torch") / "lib").glob("*.so*"))
    present = {path.name for path in (*libraries, *torch_libraries)}
    system = _system_libraries()
    needed = {soname for library in libraries for soname in _needed(library)}
    wanted = {name for library in libraries for name in _undefined(library)}
    providers = [
        *libraries,
        *(path for path in torch_libraries if path.name.startswith(("libtorch", "libc10"))),
        *(system[soname] for soname in needed if soname in system),
    ]
    provided = {name for library in providers for name in defined(library)}
    return Missing(
        sonames=frozenset(needed - present - system.keys()),
        symbols=frozenset(
            name for name in wanted - provided if not name.startswith(FOREIGN_PREFIXES)
        ),
    )


def defined(library: Path) -> set[str]:
    """Names of the dynamic symbols that ``library`` defines, without versions."""
    return {line.split()[-1].split("@")[0] for line in _symbols(library, "--defined-only")}


def defined_in_objects(objects: Iterable[Path]) -> set[str]:
    """Names that object files define for others."""
    listing = _output("nm", "--extern-only", "--defined-only", *map(str, objects))
    return {line.split()[-1] for line in listing.splitlines() if len(line.split()) == 3}


def _undefined(library: Path) -> set[str]:
    """Names ``library`` must find: versioned ones are the system's, weak ones may be absent."""
    entries = (line.split() for line in _symbols(library, "--undefined-only"))
    return {name for kind, name in entries if kind == "U" and "@" not in name}


def _symbols(library: Path, which: str) -> list[str]:
    return [line for line in _output("nm", "-D", which, str(library)).splitlines() if line.strip()]


def _needed(library: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*?)\]", _output("readelf", "-d", str(library))))


def _system_libraries() -> dict[str, Path]:
    """Soname to file for this machine's instruction set, from the dynamic linker's cache."""
    tag = {"x86_64": "x86-64", "aarch64": "AArch64"}[platform.machine()]
    pattern = rf"^\s*(\S+) \(.*{tag}.*\) => (\S+)"
    cache = _output("/sbin/ldconfig", "-p")
    return {name: Path(path) for name, path in re.findall(pattern, cache, re.M)}


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
