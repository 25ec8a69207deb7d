# SPDX-License-Identifier: Apache-2.0
"""End a server with everything that it started.

A server is started as the leader of its own session. Its children stay in that session even when
their parent dies before them, which a walk down the tree of parents would miss.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import psutil

POLL_S = 0.1


def session_members(session: int) -> list[psutil.Process]:
    """Return the living processes of the session, its leader included; zombies are dead."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue  # gone since it was listed, or not ours to look at
    return members


def end_session(leader: subprocess.Popen[bytes], sig: signal.Signals, grace_s: float) -> list[str]:
    """Ask the leader to stop, wait, and kill whatever is left of its session.

    Returns:
        The command lines of the processes that had to be killed: empty after a clean exit.
    """
    try:
        if leader.poll() is None:
            leader.send_signal(sig)
        deadline = time.monotonic() + grace_s
        # poll() also reaps the leader, which would otherwise stay a member as a zombie.
        while leader.poll() is None or session_members(leader.pid):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
    finally:
        # In `finally` for a second Ctrl-C, which ends the wait: then nobody waits any longer.
        killed = kill_session(leader)
    return killed


def kill_session(leader: subprocess.Popen[bytes]) -> list[str]:
    """Kill every process of the leader's session at once; return their command lines."""
    killed: dict[int, str] = {}
    # start_new_session=True made the leader's pid the session's. A process that forks while it is
    # being killed leaves a child for the next round.
    while members := session_members(leader.pid):
        for process in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                killed[process.pid] = " ".join(process.cmdline()) or process.name()
                process.kill()
        leader.poll()
        psutil.wait_procs(members, timeout=1)
    leader.wait()
    return list(killed.values())
