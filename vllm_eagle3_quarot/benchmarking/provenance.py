# SPDX-License-Identifier: Apache-2.0
"""Where a set of numbers comes from: command, versions, commit, processor, load of the machine."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from vllm_eagle3_quarot.diagnosis.environment import versions


@dataclass(frozen=True)
class Provenance:
    """What a reader needs to judge numbers, and to make them again.

    Attributes:
        command: as it was typed, without the folder of the interpreter.
        date: day of the run, UTC.
        commit: of the repository the code is in, with ``+changes``; None outside of one.
        versions: of the packages that matter; None for one that is not installed.
        processor: its name.
        cores: those that this process may use.
        memory_gib: of the machine.
        load_average: of the last minute, before the run; near 0 on a quiet machine.
        devices: what served.
    """

    command: str
    date: str
    commit: str | None
    versions: dict[str, str | None]
    processor: str
    cores: int
    memory_gib: float
    load_average: float
    devices: str = "CPU"

    @classmethod
    def now(cls, arguments: Sequence[str] | None = None) -> Provenance:
        """Look at this machine; ``arguments`` stand for those of the process."""
        return cls(
            command=_command(sys.argv if arguments is None else arguments),
            date=datetime.now(timezone.utc).date().isoformat(),
            commit=_commit(Path(__file__).parent),
            versions=dict(versions()),
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)),
            memory_gib=round(_memory_bytes() / 2**30, 1),
            load_average=round(os.getloadavg()[0], 2),
        )

    def document(self) -> dict[str, object]:
        """The same for a JSON file."""
        return asdict(self)


def _command(arguments: Sequence[str]) -> str:
    program, *rest = arguments
    name = Path(program).name
    if name == "__main__.py":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name.removesuffix(".__main__") if spec is not None else name
        return shlex.join(["python", "-m", module, *rest])
    if name.endswith(".py"):
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        return shlex.join(["python", *(["-m", spec.name] if spec else [name]), *rest])
    return shlex.join([name, *rest])


def _commit(folder: Path) -> str | None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        tracked = git("ls-files", "--error-unmatch", str(folder / "provenance.py"))
        if not tracked:
            return None
        commit = git("rev-parse", "--short=12", "HEAD")
        return (
            f"{commit}+changes" if git("status", "--porcelain", "--untracked-files=no") else commit
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # installed from a wheel, or no git on this machine


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
