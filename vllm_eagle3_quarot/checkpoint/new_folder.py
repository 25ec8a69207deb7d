# SPDX-License-Identifier: Apache-2.0
"""Writing a whole checkpoint folder so that it is there completely or not at all.

Everything is written into a hidden folder beside the place where it belongs and flushed to disk;
one rename then makes it visible. Replacing an existing folder is one exchange of names, which Linux
offers as ``renameat2(RENAME_EXCHANGE)``: at every moment the name shows the old state or the new.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_eagle3_quarot.errors import CheckpointError

AT_FDCWD = -100
RENAME_EXCHANGE = 2


@contextmanager
def new_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder that becomes ``path`` when the block ends without an exception.

    What an interrupted run left behind is removed by the next one for the same place.

    Raises:
        CheckpointError: ``path`` exists and ``overwrite`` is off, another run is writing it, the
            disk is full, or the place cannot be written. Nothing is left behind.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and not overwrite:
        raise CheckpointError(
            f"{path} exists already; nothing was written. Choose another folder, or pass "
            "--overwrite to replace it"
        )
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file where a folder is to be written")
    partial = path.with_name(f".{path.name}.eagle3-quarot-partial")
    try:
        with _locked(partial):
            try:
                yield partial
                flush_folder(partial)
                _show(partial, path)
            finally:
                # After the exchange of names this is the folder that was replaced.
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
        raise CheckpointError(
            f"{path} could not be written ({reason}); nothing was left behind"
        ) from error


def copy_file(source: Path, destination: Path) -> None:
    """Copy the contents of one file, links followed, and flush them to disk."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reader, destination.open("xb") as writer:
        shutil.copyfileobj(reader, writer, 16 * 2**20)
        writer.flush()
        os.fsync(writer.fileno())


def write_text(destination: Path, text: str) -> None:
    """Write one text file as UTF-8 and flush it to disk."""
    with destination.open("xb") as writer:
        writer.write(text.encode())
        writer.flush()
        os.fsync(writer.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the names in ``folder`` and below it to disk."""
    for directory, _, _ in os.walk(folder):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _locked(partial: Path) -> Iterator[None]:
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir(exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"another run is writing {partial} at this moment; wait for it to end"
            ) from error
        for left_over in partial.iterdir():
            if left_over.is_dir() and not left_over.is_symlink():
                shutil.rmtree(left_over)
            else:
                left_over.unlink()
        yield
    finally:
        os.close(descriptor)


def _show(partial: Path, path: Path) -> None:
    if path.exists():
        _exchange(partial, path)
    else:
        os.rename(partial, path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> None:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    code = errno.ENOSYS
    if renameat2 is not None:
        names = os.fsencode(one), os.fsencode(other)
        if renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        raise CheckpointError(
            f"{other} cannot be replaced in one step on this file system; nothing was changed. "
            "Remove it first, or write to another folder"
        )
    raise OSError(code, os.strerror(code), str(other))
