# SPDX-License-Identifier: Apache-2.0
"""Start the real ``vllm serve``, talk to it over HTTP, read its metrics, stop all of it.

Shared by the demo (`tools.demo`) and the end-to-end tests (`tests/e2e`).
"""

from __future__ import annotations

from tools.serving.client import GreedyRun, greedy_run
from tools.serving.options import ServeOptions
from tools.serving.reference_pair import ReferencePair
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import SpecCounters
from vllm_eagle3_quarot.serving.server import Server, StopReport

__all__ = [
    "GreedyRun",
    "ReferencePair",
    "ServeOptions",
    "Server",
    "ServingError",
    "SpecCounters",
    "StopReport",
    "greedy_run",
]
