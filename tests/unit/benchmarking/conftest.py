# SPDX-License-Identifier: Apache-2.0
"""What vLLM's client writes, as far as it is read."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def client_result() -> dict[str, Any]:
    """Two requests of 20 tokens each, in 2 s."""
    times = {
        f"{statistic}_{name}_ms": base + offset
        for name, base in (("ttft", 100.0), ("tpot", 10.0))
        for statistic, offset in (("mean", 2.0), ("p50", 1.0), ("p99", 9.0))
    }
    return {
        "completed": 2,
        "total_output_tokens": 40,
        "output_throughput": 20.0,
        "errors": ["", ""],
        "generated_texts": ["well then", "no " * 50],
        **times,
    }
