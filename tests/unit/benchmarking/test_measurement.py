# SPDX-License-Identifier: Apache-2.0
"""Figures from the client's JSON and the server's counters."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_eagle3_quarot.benchmarking.measurement import Measurement, Times
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import SpecCounters

NOTHING_DRAFTED = SpecCounters(0, 0, 0, (), 40)


def test_figures(client_result: dict[str, Any]) -> None:
    counted = SpecCounters(10, 30, 15, (8, 5, 2), 40)
    assert Measurement.of(client_result, counted) == Measurement(
        requests=2,
        output_tokens=40,
        output_tokens_per_second=20.0,
        ttft=Times(102.0, 101.0, 109.0),
        tpot=Times(12.0, 11.0, 19.0),
        acceptance_rate=0.5,
        acceptance_per_position=(0.8, 0.5, 0.2),
        mean_acceptance_length=2.5,
        degenerate=1,
    )


def test_without_speculation(client_result: dict[str, Any]) -> None:
    measured = Measurement.of(client_result, NOTHING_DRAFTED)
    assert measured.acceptance_rate is None
    assert measured.acceptance_per_position == ()
    assert measured.mean_acceptance_length is None


def test_a_failed_request_is_an_error(client_result: dict[str, Any]) -> None:
    client_result["errors"][1] = "Traceback ...\nClientError: connection lost\n"
    with pytest.raises(ServingError, match=r"1 of 2 requests failed: ClientError: connection lost"):
        Measurement.of(client_result, NOTHING_DRAFTED)


def test_nothing_completed_is_an_error(client_result: dict[str, Any]) -> None:
    client_result.update(completed=0, errors=[])
    with pytest.raises(ServingError, match="none was completed"):
        Measurement.of(client_result, NOTHING_DRAFTED)
