# SPDX-License-Identifier: Apache-2.0
"""A folder is there completely or not at all: killed, on a full disk, interrupted, in a race."""

from __future__ import annotations

import errno
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_eagle3_quarot.checkpoint.new_folder import copy_file, new_folder, write_text
from vllm_eagle3_quarot.errors import CheckpointError

#: Writes 8 files of one letter each, over and over: a folder of mixed letters is a torn one.
WRITER = """
import sys
from pathlib import Path
from vllm_eagle3_quarot.checkpoint.new_folder import new_folder, write_text
for letter in "bcdefghijklmnopqrstuvwxyz" * 1000:
    with new_folder(Path(sys.argv[1]), overwrite=True) as folder:
        for number in range(8):
            write_text(folder / str(number), letter * 1000)
    print(letter, flush=True)
"""


def _contents(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.iterdir()}


def test_killed_at_any_moment_the_old_or_the_new_is_there(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with new_folder(place, overwrite=False) as folder:
        for number in range(8):
            write_text(folder / str(number), "a" * 1000)
    rng = random.Random(7)
    for _ in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(place)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for letter in "bcd"[: rng.randint(1, 3)]:
            assert process.stdout.readline() == f"{letter}\n"
        time.sleep(rng.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(list(place.iterdir())) == 8
        contents = _contents(place)
        assert len(contents) == 1
        assert contents != {"a" * 1000}
    with new_folder(place, overwrite=True) as folder:
        assert list(folder.iterdir()) == []
        write_text(folder / "0", "z")
    assert _contents(place) == {"z"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(CheckpointError, match=r"the disk is full.*nothing was left"),
        new_folder(tmp_path / "out", overwrite=False) as folder,
    ):
        write_text(folder / "1", "a")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_leaves_nothing_and_keeps_the_old(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out", overwrite=False) as folder:
        write_text(folder / "1", "old")
    with (
        pytest.raises(KeyboardInterrupt),
        new_folder(tmp_path / "out", overwrite=True) as folder,
    ):
        write_text(folder / "1", "new")
        raise KeyboardInterrupt
    assert _contents(tmp_path / "out") == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_existing_folder_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/1").write_text("old")
    with (
        pytest.raises(CheckpointError, match="--overwrite"),
        new_folder(tmp_path / "out", overwrite=False),
    ):
        pytest.fail("the block must not be entered")
    assert _contents(tmp_path / "out") == {"old"}


def test_two_runs_for_one_place_do_not_mix(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out", overwrite=False) as folder:
        write_text(folder / "1", "first")
        with (
            pytest.raises(CheckpointError, match="another run"),
            new_folder(tmp_path / "out", overwrite=False),
        ):
            pytest.fail("the block must not be entered")
        assert (folder / "1").exists()
    assert _contents(tmp_path / "out") == {"first"}


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(CheckpointError, match="could not be written"),
        new_folder(tmp_path / "file/out", overwrite=False),
    ):
        pytest.fail("the block must not be entered")


def test_copies_follow_links(tmp_path: Path) -> None:
    """A hub cache is made of links."""
    (tmp_path / "blob").write_bytes(b"contents")
    (tmp_path / "link").symlink_to(tmp_path / "blob")
    copy_file(tmp_path / "link", tmp_path / "sub/copy")
    assert not (tmp_path / "sub/copy").is_symlink()
    assert (tmp_path / "sub/copy").read_bytes() == b"contents"
