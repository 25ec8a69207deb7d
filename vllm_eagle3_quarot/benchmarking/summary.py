# SPDX-License-Identifier: Apache-2.0
"""Medians and spreads over the rounds, as a document that tables and plots are made from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.measurement import Measurement
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.runner import Served

Document = dict[str, Any]

#: Version of the document's layout.
LAYOUT = 1


def document(results: Sequence[Served], client: Client, provenance: Provenance) -> Document:
    """Everything that was measured, single runs included."""
    return {
        "layout": LAYOUT,
        "provenance": provenance.document(),
        "dataset": client.dataset.name,
        "prompts": client.prompts,
        "output_tokens": client.output_tokens,
        "servers": [_server(served) for served in results],
    }


def _server(served: Served) -> Document:
    return {
        "target": served.spec.target,
        "draft": served.spec.draft.value,
        "speculative_tokens": served.spec.speculative_tokens,
        "start_up_seconds": spread(served.start_up_seconds),
        "peak_rss_bytes": spread(served.peak_rss_bytes),
        "loads": [
            {
                "concurrency": load.concurrency,
                "sampling": load.sampling.value,
                **_figures(runs),
                "runs": [asdict(run) for run in runs],
            }
            for load, runs in served.loads.items()
        ],
    }


def _figures(runs: Sequence[Measurement]) -> Document:
    def over(read: Callable[[Measurement], float | None]) -> Document | None:
        values = [value for value in map(read, runs) if value is not None]
        return spread(values) if values else None

    positions = len(runs[0].acceptance_per_position)
    return {
        "requests": sum(run.requests for run in runs),
        "degenerate": sum(run.degenerate for run in runs),
        "output_tokens_per_second": over(lambda run: run.output_tokens_per_second),
        **{
            f"{name}_ms_{part}": over(lambda run, n=name, p=part: getattr(getattr(run, n), p))  # type: ignore[misc]
            for name in ("ttft", "tpot")
            for part in ("mean", "p50", "p99")
        },
        "acceptance_rate": over(lambda run: run.acceptance_rate),
        "acceptance_per_position": [
            over(lambda run, at=position: run.acceptance_per_position[at])  # type: ignore[misc]
            for position in range(positions)
        ],
        "mean_acceptance_length": over(lambda run: run.mean_acceptance_length),
    }


def spread(values: Sequence[float]) -> Document:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}
