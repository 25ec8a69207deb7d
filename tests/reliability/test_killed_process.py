# SPDX-License-Identifier: Apache-2.0
"""A process of a server is killed: it says so and ends, as one without this plugin does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.served import DTYPE
from tests.reliability.remains import clear, shared_memory_of
from tests.reliability.streams import interrupted_streams
from tools.serving import ReferencePair, ServeOptions, Server
from vllm_eagle3_quarot.serving.processes import session_members

pytestmark = pytest.mark.soak

ENDS_WITHIN_S = 60.0


@dataclass(frozen=True)
class End:
    """How a server ended after one of its processes was killed.

    Attributes:
        exit_code: of its first process.
        left: processes that were still there when that had ended.
        says: whether its log tells that the engine died.
    """

    exit_code: int | None
    left: int
    says: bool


def end_after_killing(name: str, options: ServeOptions, log: Path) -> End:
    """Kill the process of that name while clients read their streams."""
    with Server.of(options, log) as server:
        session = server.process.pid
        (victim,) = [each for each in session_members(session) if each.name() == f"VLLM::{name}"]
        shared_memory = shared_memory_of(session)
        assert "complete" not in asyncio.run(interrupted_streams(server, victim.kill))
        deadline = time.monotonic() + ENDS_WITHIN_S
        while server.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        # Those that notice the end of the first one by a closed pipe need a moment.
        while session_members(session) and time.monotonic() < deadline:
            time.sleep(0.2)
        left = len(session_members(session))
        code = server.process.poll()
    clear(shared_memory)
    text = log.read_text(encoding="utf-8", errors="replace")
    return End(code, left, "EngineDeadError" in text)


@pytest.mark.parametrize("name", ["Worker", "EngineCore"])
def test_the_server_ends_as_without_the_plugin(pair: ReferencePair, logs: Path, name: str) -> None:
    ours = ServeOptions(target=pair.rotated, draft=pair.draft, dtype=DTYPE)
    # Without a draft: vLLM 0.23.0 cannot draft on a CPU without this plugin's repairs.
    stock = ServeOptions(
        target=pair.original, dtype=DTYPE, environment={"VLLM_EAGLE3_QUAROT_DISABLE": "1"}
    )
    end = end_after_killing(name, ours, logs / f"killed {name}.log")
    assert end == end_after_killing(name, stock, logs / f"killed {name}, stock.log")
    assert end.left == 0
    assert end.says
