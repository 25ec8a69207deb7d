# SPDX-License-Identifier: Apache-2.0
"""One server on a host where nothing is as it should be, and the end of it in full flight.

It runs as a user without rights and without a home; its checkpoints are read-only, the disk for
caches is full, the language is one whose capital i has a dot, and the clock is in 1999 and jumps.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.served import DTYPE
from tests.reliability.remains import shared_memory_of, what_is_left
from tests.reliability.streams import interrupted_streams
from tests.support.namespaces import NEEDS_MOUNTS, with_read_only, with_small_disk
from tools.serving import ReferencePair, ServeOptions, Server, SpecCounters, greedy_run
from tools.serving.client import connect
from tools.serving.options import HOST, MODEL
from vllm_eagle3_quarot.serving.ports import claim_port

pytestmark = [NEEDS_MOUNTS, pytest.mark.soak]

NOBODY = 65534

GUARDED_DRAFTS = 100
"""The guard's window; three completions make about as many drafts when none is accepted."""

CLOCK = """
import time
_start = time.monotonic()
def _odd():
    # Every ten seconds an hour back, from the evening of the last day of 1999 (UTC).
    passed = time.monotonic() - _start
    return 946_683_000.0 + passed - 3600 * (passed // 10)
time.time = _odd
time.time_ns = lambda: int(_odd() * 1e9)
"""
"""What Python code sees as the time of day: imported at the start of each of its processes."""


def as_nobody() -> list[str]:
    """The start of a command line: no rights but to read, since Python may lie in root's home."""
    if os.geteuid() != 0:
        return []  # whoever runs the tests has no rights already
    return [
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
    ]


def odd_environment(folder: Path) -> dict[str, str]:
    """No home; Turkish, where the system can make it; a time zone at the edge; a broken clock."""
    (folder / "sitecustomize.py").write_text(CLOCK, encoding="utf-8")
    if shutil.which("localedef") is not None:
        turkish = ["localedef", "-i", "tr_TR", "-f", "UTF-8", str(folder / "tr_TR.UTF-8")]
        subprocess.run(turkish, capture_output=True, check=False)
    return {
        "LOCPATH": str(folder),
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Kiritimati",
        "PYTHONPATH": str(folder),
        "XDG_CACHE_HOME": str(folder / "full"),
    }


@pytest.fixture(scope="module")
def server(pair: ReferencePair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    full = folder / "full"
    full.mkdir()
    options = ServeOptions(
        target=pair.rotated,
        draft=pair.draft,
        dtype=DTYPE,
        plugin={"guard": {"min_acceptance": 0.5, "after_drafts": GUARDED_DRAFTS}},
        environment=odd_environment(folder),
    )
    environment = options.full_environment()
    # Whoever runs the tests is not who serves: torch names its cache folder by these.
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        environment.pop(name, None)
    port = claim_port(HOST, None)
    command = [
        *with_small_disk(full, "nr_inodes=1"),
        *with_read_only(pair.rotated.parent),
        *as_nobody(),
        *options.command(port),
    ]
    with Server(command, environment, port, folder / "server.log") as running:
        yield running


def log_of(server: Server) -> str:
    return server.log.read_text(encoding="utf-8", errors="replace")


def test_it_serves_and_drafts_as_anywhere(server: Server, pair: ReferencePair) -> None:
    run = greedy_run(server, pair.completions[:4], 32)
    assert run.counters.acceptance[0] >= 0.8
    assert psutil.Process(server.process.pid).uids().effective == (os.geteuid() or NOBODY)
    # Kernels could not be built; the operators run without them. (The reason is in Turkish.)
    assert re.search(r"operators on the CPU run as plain torch \(.*Errno 28", log_of(server))


def drafts_of(server: Server, prompt: str, temperature: float) -> SpecCounters:
    before = server.counters()
    with connect(server) as client:
        client.completions.create(
            model=MODEL,
            prompt=prompt,
            max_tokens=GUARDED_DRAFTS,
            temperature=temperature,
            extra_body={"ignore_eos": True},
        )
    return server.counters() - before


def test_the_guard_warns_once_and_tells_the_recovery(server: Server, pair: ReferencePair) -> None:
    """At a temperature that makes every word likely, hardly a proposal is accepted."""
    prompts = iter(pair.completions)
    for _ in range(3):
        assert drafts_of(server, next(prompts), temperature=50.0).acceptance[0] < 0.3
    warning = (
        rf"only (\d+\.\d) % of the last {GUARDED_DRAFTS} drafts: .* To find out which: "
        rf"eagle3-quarot doctor --target {pair.rotated} --draft {pair.draft}"
    )
    assert len(re.findall(warning, log_of(server))) == 1
    recovery = rf"accepts the draft's first token again, in .* % of the last {GUARDED_DRAFTS} draf"
    drafted = 0
    while drafted < 2 * GUARDED_DRAFTS:  # the rest of a window, and a whole one
        assert not re.search(recovery, log_of(server)) or drafted
        drafted += drafts_of(server, next(prompts), temperature=0.0).drafts
    assert len(re.findall(recovery, log_of(server))) == 1
    assert len(re.findall(warning, log_of(server))) == 1


def test_told_to_end_while_it_streams_it_ends_with_all_that_is_its(server: Server) -> None:
    session = server.process.pid
    shared_memory = shared_memory_of(session)
    assert shared_memory, "the server's processes talk through shared memory"

    ends = asyncio.run(
        interrupted_streams(server, lambda: server.process.send_signal(signal.SIGTERM))
    )
    assert "complete" not in ends
    report = server.stop()
    assert (report.exit_code, report.killed) == (0, ())
    assert what_is_left(session, shared_memory) == []
