# SPDX-License-Identifier: Apache-2.0
"""Programs that see other file systems than this one.

They get a mount namespace of their own, so that the mounts end with the last of their processes,
however that ends.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

#: Root needs no user namespace; without root the program believes to be root in one of its own.
UNSHARE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "-Ur", "--mount")


@cache
def _may_mount() -> bool:
    probe = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


NEEDS_MOUNTS = pytest.mark.skipif(
    not _may_mount(), reason="this user may not mount in a namespace of its own (a container?)"
)


def with_small_disk(folder: Path, limit: str) -> list[str]:
    """The start of a command line: ``folder`` is an empty file system of its own.

    ``limit`` is an option of tmpfs: ``size=64k``, or ``nr_inodes=1`` for one without room for a
    single file.
    """
    return _mounting('mount -t tmpfs -o "$1" tmpfs "$2"', limit, str(folder))


def with_read_only(folder: Path) -> list[str]:
    """The start of a command line: nothing can be written in ``folder``, not even by root."""
    return _mounting('mount --bind "$2" "$2" && mount -o "remount,bind,$1" "$2"', "ro", str(folder))


def _mounting(mount: str, option: str, folder: str) -> list[str]:
    script = f'{mount} && shift 2 && exec "$@"'
    return [*UNSHARE, "sh", "-c", script, "sh", option, folder]
