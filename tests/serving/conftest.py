# SPDX-License-Identifier: Apache-2.0
"""Servers that start at once, for tests of the harness itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.serving.options import HOST
from vllm_eagle3_quarot.serving.ports import claim_port
from vllm_eagle3_quarot.serving.server import Server, Waiting

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


@pytest.fixture
def make_server(tmp_path: Path) -> Callable[..., Server]:
    """Return a function that prepares a fake server of the given behaviour."""

    def make(behaviour: str, waiting: Waiting | None = None) -> Server:
        port = claim_port(HOST, None)
        command = [sys.executable, str(FAKE_SERVER), str(port), behaviour]
        return Server(command, dict(os.environ), port, tmp_path / "server.log", waiting)

    return make
