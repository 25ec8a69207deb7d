# SPDX-License-Identifier: Apache-2.0
"""Acceptance is computed from differences of vLLM's counters."""

from __future__ import annotations

import pytest

from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import SpecCounters

LABELS = 'engine="0",model_name="reference"'


def metrics_page(drafts: int, accepted: tuple[int, ...], generated: int) -> str:
    """Return counters in the form in which vLLM 0.23 publishes them, with a `_created` beside."""
    lines = [
        "# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.",
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        f"vllm:spec_decode_num_drafts_total{{{LABELS}}} {drafts}.0",
        "# TYPE vllm:spec_decode_num_drafts_created gauge",
        f"vllm:spec_decode_num_drafts_created{{{LABELS}}} 1.7959630398120177e+09",
        "# TYPE vllm:spec_decode_num_draft_tokens_total counter",
        f"vllm:spec_decode_num_draft_tokens_total{{{LABELS}}} {drafts * len(accepted)}.0",
        "# TYPE vllm:spec_decode_num_accepted_tokens_total counter",
        f"vllm:spec_decode_num_accepted_tokens_total{{{LABELS}}} {sum(accepted)}.0",
        "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter",
        *(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            f'{{{LABELS},position="{position}"}} {count}.0'
            for position, count in reversed(list(enumerate(accepted)))
        ),
        "# TYPE vllm:generation_tokens_total counter",
        f"vllm:generation_tokens_total{{{LABELS}}} {generated}.0",
    ]
    return "\n".join(lines) + "\n"


def test_acceptance_between_two_snapshots() -> None:
    before = SpecCounters.from_text(metrics_page(10, (5, 2, 1), 18))
    after = SpecCounters.from_text(metrics_page(110, (95, 72, 41), 318))
    counted = after - before
    assert counted == SpecCounters(100, 300, 200, (90, 70, 40), 300)
    assert counted.acceptance == (0.9, 0.7, 0.4)
    assert counted.mean_acceptance_length == 3.0


def test_positions_are_absent_from_the_first_snapshot_of_a_fresh_server() -> None:
    before = SpecCounters.from_text("")
    after = SpecCounters.from_text(metrics_page(4, (3, 1, 0), 8))
    assert (after - before).accepted_per_position == (3, 1, 0)


def test_engines_are_summed() -> None:
    one = metrics_page(4, (3, 1), 8)
    both = SpecCounters.from_text(one + one.replace('engine="0"', 'engine="1"'))
    assert both == SpecCounters(8, 16, 8, (6, 2), 16)


def test_a_server_that_drafts_nothing_has_no_acceptance() -> None:
    idle = SpecCounters.from_text(metrics_page(0, (0, 0, 0), 64))
    with pytest.raises(ServingError, match="speculation is not running"):
        _ = idle.mean_acceptance_length
    with pytest.raises(ServingError, match="speculation is not running"):
        _ = idle.acceptance
