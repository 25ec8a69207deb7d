# SPDX-License-Identifier: Apache-2.0
"""What a server uses that may outlive it: processes and shared memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from vllm_eagle3_quarot.serving.processes import session_members

SHARED_MEMORY = "/dev/shm/"


def shared_memory_of(session: int) -> set[Path]:
    """Files in shared memory that processes of the session have open or mapped."""
    found: set[Path] = set()
    for process in session_members(session):
        folder = Path("/proc") / str(process.pid)
        with suppress(OSError):  # it has ended meanwhile
            mapped = (folder / "maps").read_text(encoding="utf-8", errors="replace").split()
            found.update(Path(word) for word in mapped if word.startswith(SHARED_MEMORY))
            for descriptor in (folder / "fd").iterdir():
                path = descriptor.readlink()
                if str(path).startswith(SHARED_MEMORY):
                    found.add(path)
    return found


def what_is_left(session: int, shared_memory: set[Path]) -> list[str]:
    """Living processes of the session, and those of the files that are still there."""
    processes = [f"process {process.pid} {process.name()}" for process in session_members(session)]
    return processes + [str(path) for path in sorted(shared_memory) if path.exists()]


def clear(shared_memory: set[Path]) -> None:
    """Remove these files: a process that was killed could not."""
    for path in shared_memory:
        path.unlink(missing_ok=True)
