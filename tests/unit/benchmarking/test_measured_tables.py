# SPDX-License-Identifier: Apache-2.0
"""Numbers of the benchmark scripts become the same table in both languages."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.quality.engines import Answer
from tools.docs import benchmarks
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.words import Language

ORIGIN = Provenance.now(["benchmarks", "--x"]).document()


def _cost(seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "peak_bytes": 2e9 * seconds, "resident_bytes": 0.0}


DOCUMENTS: dict[str, dict[str, Any]] = {
    "load": {
        "rows": [
            {
                "model": "M",
                "hidden": 2048,
                "vocabulary": 9,
                "draft_table": "none",
                "vllm-ascend": _cost(1.0),
                "runtime": _cost(0.01),
                "fold": _cost(0.02),
            }
        ]
    },
    "overhead": {
        "rows": [
            {
                "hidden": 2048,
                "draft": "own embedding and head",
                "sequences": 1,
                "steps": 4,
                "step_ms": 10.0,
                "ours_us": 50.0,
                "operators": {"eagle3_quarot::unrotate_": 1.0},
                "share": 0.005,
            }
        ]
    },
    "random": {
        "random": [
            {
                "draft": "one aux state",
                "uncorrected": 0.0,
                "runtime": 1.0,
                "fold": {"error": "UnsupportedPairError: no"},
                "vllm-ascend": {"error": "RuntimeError: size mismatch"},
            }
        ]
    },
}

EXPECTED: dict[str, dict[Language, str]] = {
    "load": {
        "en": "| M (H = 2048, V = 9) | none | 1.00 | 0.01 | 0.02 | 2000 | 20 | 40 | 0 | 0 | 0 |",
        "zh": "| M (H = 2048, V = 9) | 无 | 1.00 | 0.01 | 0.02 | 2000 | 20 | 40 | 0 | 0 | 0 |",
    },
    "overhead": {
        "en": "| 2048 | own embedding and head | 1 | 10.0 | 50 | 0.50 | unrotate_ 1 |",
        "zh": "| 2048 | 自己的词表与输出头 | 1 | 10.0 | 50 | 0.50 | unrotate_ 1 |",
    },
    "random": {
        "en": "| one aux state | 0.000 | 1.000 | refused | fails |",
        "zh": "| one aux state | 0.000 | 1.000 | 拒绝启动 | 启动失败 |",
    },
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_rows(name: str, language: Language) -> None:
    _, make = benchmarks.TABLES[name]
    text = make({"provenance": ORIGIN, **DOCUMENTS[name]}, language)
    assert EXPECTED[name][language] in text.splitlines()
    assert "not measured" in text


def test_share_of_equal_proposals() -> None:
    """Of the longer list: a draft that was accepted more often was asked less often."""
    one = Answer(tokens=[[1, 2, 3]], proposals=[[[4, 5]], [[6, 7]], [[8, 9]], [[1, 1]]])
    two = Answer(tokens=[[1, 2, 3]], proposals=[[[4, 5]], [[6, 0]], [[8, 9]]])
    assert one.same_as(one) == 1.0
    assert one.same_as(two) == two.same_as(one) == 0.5


def test_acceptance_from_tokens_and_calls() -> None:
    """Three calls of two proposals each for nine tokens: six beyond the target's own three."""
    answer = Answer(tokens=[[1] * 6, [2] * 3], proposals=[[[4, 5]], [[6, 7]], [[8, 9]]])
    assert answer.acceptance == 1.0
