# SPDX-License-Identifier: Apache-2.0
"""Building and loading the native kernels, and doing without them.

Every case runs in processes of its own. The compiler is mostly a stand-in that notes each call and
hands out the library that this session has built, so that a case takes a second.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.namespaces import NEEDS_MOUNTS, with_small_disk
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.ops.native import _load
from vllm_eagle3_quarot.ops.native_build import is_intact

ROOT = Path(__file__).parents[3]

#: Says what runs, and that the values are right: against fp64, with the fp32 tolerance of a sum.
PROGRAM = """
import logging, torch
logging.basicConfig(level=logging.INFO, format="%(message)s")
from tests.support.plans import exact_unrotate, real_plan
from vllm_eagle3_quarot import ops
backend = ops.load_native()
assert ops.load_native() is backend
plan = real_plan(192)
aux = [torch.randn(5, 192) for _ in range(2)]
exact = exact_unrotate(torch.cat(aux, dim=-1), plan)
assert (ops.unrotate_concat(aux, plan).double() - exact).abs().max() < 2e-6
print(backend)
"""


def start(
    cache: Path | str, prefix: Sequence[str] = (), **environment: str
) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("CXX", "PYTHONPATH")}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**kept, "XDG_CACHE_HOME": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """What the process printed; its one log line says the same."""
    output, log = process.communicate(timeout=600)
    assert process.returncode == 0, log
    lines = [line for line in log.splitlines() if "operators on the CPU" in line]
    assert lines == [f"eagle3_quarot: operators on the CPU run as {output.strip()}"]
    return output.strip()


@pytest.fixture
def compiler(tmp_path: Path, native: ops.Backend) -> Path:
    """A stand-in for the compiler; ``calls`` beside it has one line per call."""
    script = tmp_path / "compiler"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> "{tmp_path}/calls"\n'
        'while [ "$1" != "-o" ]; do shift; done\n'
        "sleep 0.2\n"
        f'exec cp "{native.detail}" "$2"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def calls(compiler: Path) -> list[str]:
    return (compiler.parent / "calls").read_text().splitlines()


def libraries(cache: Path) -> list[str]:
    return sorted(path.suffix for path in (cache / "vllm-eagle3-quarot").iterdir())


def test_several_processes_build_once(tmp_path: Path, compiler: Path) -> None:
    """The workers of one server all start at the same moment."""
    processes = [start(tmp_path, CXX=str(compiler)) for _ in range(3)]
    for process in processes:
        assert finish(process).startswith("native kernels, ")
    links = [call for call in calls(compiler) if "-shared" in call]
    assert len(links) == 1
    assert libraries(tmp_path) == [".lock", ".sha256", ".so"]


def test_cached_library_needs_no_compiler(tmp_path: Path, compiler: Path) -> None:
    finish(start(tmp_path, CXX=str(compiler)))
    before = calls(compiler)
    assert finish(start(tmp_path, PATH="")).startswith("native kernels, ")
    assert calls(compiler) == before


def test_damaged_cached_library_is_built_anew(tmp_path: Path, compiler: Path) -> None:
    finish(start(tmp_path, CXX=str(compiler)))
    [library] = (tmp_path / "vllm-eagle3-quarot").glob("*.so")
    # Opening it would end the process with SIGBUS.
    library.write_bytes(library.read_bytes()[:1000])
    assert finish(start(tmp_path, CXX=str(compiler))).startswith("native kernels, ")
    assert sum("-shared" in call for call in calls(compiler)) == 2


def test_checksum_that_is_no_text(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"whole")
    library.with_suffix(".sha256").write_bytes(b"\xff" * 64)
    assert not is_intact(library)


def test_builder_killed_at_work_leaves_nothing_in_the_way(tmp_path: Path, compiler: Path) -> None:
    killed = start(tmp_path, CXX=str(compiler))
    while not (compiler.parent / "calls").exists():
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    assert any(tmp_path.rglob("build-*")), "it was killed too late: no folder of a build is left"
    assert finish(start(tmp_path, CXX=str(compiler))).startswith("native kernels, ")
    assert libraries(tmp_path) == [".lock", ".sha256", ".so"]


@NEEDS_MOUNTS
def test_full_disk(tmp_path: Path, compiler: Path) -> None:
    """Room for the lock, and for a part of the first file of a build."""
    full = tmp_path / "full"
    full.mkdir()
    text = finish(start(full, with_small_disk(full, "size=64k"), CXX=str(compiler)))
    assert text.startswith(f"plain torch ({compiler} failed: ")
    assert "No space left on device" in text


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container does it that runs under a number without an account."""

    def no_account(uid: int) -> NoReturn:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_account)
    assert str(_load()).startswith("plain torch (the native library cannot be used: ")


def test_compiler_of_another_country(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for English, and a byte that is no text does no harm."""
    script = tmp_path / "foreign"
    script.write_text("#!/bin/sh\nprintf 'error in %s \\377\\n' \"$LC_ALL\" >&2\nexit 1\n")
    script.chmod(0o700)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    assert str(_load()) == f"plain torch ({script} failed: error in C \\xff)"


def test_without_a_compiler(tmp_path: Path) -> None:
    assert finish(start(tmp_path, PATH="")) == "plain torch (no C++ compiler in PATH)"


def test_compiler_that_fails(tmp_path: Path) -> None:
    """As on a full disk, or with headers missing."""
    script = tmp_path / "failing"
    script.write_text(
        "#!/bin/sh\necho 'x.cpp:1:1: fatal error: No space left on device' >&2\nexit 1\n"
    )
    script.chmod(0o700)
    assert finish(start(tmp_path, CXX=str(script))) == (
        f"plain torch ({script} failed: x.cpp:1:1: fatal error: No space left on device)"
    )
    assert libraries(tmp_path) == [".lock"]


def test_cache_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = finish(start(tmp_path / "file" / "cache"))
    assert text.startswith("plain torch (the native library cannot be used: ")
    assert "Not a directory" in text


def test_switched_off(tmp_path: Path) -> None:
    off = start(tmp_path, VLLM_EAGLE3_QUAROT_CPU_KERNEL="off")
    assert finish(off) == "plain torch (VLLM_EAGLE3_QUAROT_CPU_KERNEL is 'off')"
    wrong = finish(start(tmp_path, VLLM_EAGLE3_QUAROT_CPU_KERNEL="fast"))
    assert wrong.startswith("plain torch (VLLM_EAGLE3_QUAROT_CPU_KERNEL is 'fast', known are auto")
    assert not (tmp_path / "vllm-eagle3-quarot").exists()


def test_one_instruction_set_by_name(tmp_path: Path, compiler: Path) -> None:
    process = start(tmp_path, CXX=str(compiler), VLLM_EAGLE3_QUAROT_CPU_KERNEL="generic")
    assert finish(process).startswith("native kernels, generic (")
