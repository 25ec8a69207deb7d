# SPDX-License-Identifier: Apache-2.0
"""One server under one load, once: figures as ``vllm bench serve`` reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_eagle3_quarot.benchmarking.degenerate import count_degenerate
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import SpecCounters


@dataclass(frozen=True)
class Times:
    """Milliseconds: mean, median, 99th percentile over the requests."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True)
class Measurement:
    """Figures of one run.

    Attributes:
        requests: completed.
        output_tokens: made.
        output_tokens_per_second: of all requests together.
        ttft: time to the first token.
        tpot: time per output token after the first.
        acceptance_rate: accepted / drafted tokens; None where nothing was drafted.
        acceptance_per_position: accepted at a position / drafts.
        mean_acceptance_length: 1 + accepted / drafts.
        degenerate: completions that go in circles.
    """

    requests: int
    output_tokens: int
    output_tokens_per_second: float
    ttft: Times
    tpot: Times
    acceptance_rate: float | None
    acceptance_per_position: tuple[float, ...]
    mean_acceptance_length: float | None
    degenerate: int

    @classmethod
    def of(cls, result: Mapping[str, Any], counted: SpecCounters) -> Measurement:
        """From the client's JSON; ``counted`` is what the server's /metrics grew by meanwhile.

        Raises:
            ServingError: a request failed, or none was completed.
        """
        failed = [error for error in result["errors"] if error]
        if failed or not result["completed"]:
            raise ServingError(
                f"{len(failed)} of {len(result['errors'])} requests failed: "
                f"{failed[0].strip().splitlines()[-1] if failed else 'none was completed'}"
            )
        return cls(
            requests=result["completed"],
            output_tokens=result["total_output_tokens"],
            output_tokens_per_second=result["output_throughput"],
            ttft=_times(result, "ttft"),
            tpot=_times(result, "tpot"),
            acceptance_rate=counted.accepted / counted.draft_tokens if counted.drafts else None,
            acceptance_per_position=counted.acceptance if counted.drafts else (),
            mean_acceptance_length=counted.mean_acceptance_length if counted.drafts else None,
            degenerate=count_degenerate(result["generated_texts"]),
        )


def _times(result: Mapping[str, Any], name: str) -> Times:
    return Times(result[f"mean_{name}_ms"], result[f"p50_{name}_ms"], result[f"p99_{name}_ms"])
