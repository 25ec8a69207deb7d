# SPDX-License-Identifier: Apache-2.0
"""vllm-ascend's graph mode: all steps of a proposal are one graph, captured once and replayed.

Graphs are emulated (``device/graphs.py``): a replay repeats the recorded operator calls over the
same memory and runs none of the draft's Python. So what we do inside must be operators that read
nothing on the host, over buffers that stay where they are. What a device would do with such a
graph, its memory pool and its streams, is not shown.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.ascend.conftest import RunJobs
from tests.ascend.drafts import SHAPE
from tests.ascend.jobs import Job, Outcome
from tests.ascend.targets import float_target, rotated_float_target
from tests.support import reference_pair as pair

#: Three requests with three drafted tokens each are 12 rows, or fewer once one is done.
REQUESTS, SIZES = 3, [16]


@pytest.fixture(scope="module")
def outcomes(run_jobs: RunJobs, tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """An eager engine on the original target, and graphs on the rotated one."""
    folder: Path = tmp_path_factory.mktemp("pairs")
    original = float_target(folder / "original")
    rotated = rotated_float_target(folder / "rotated")
    # Its embedding is the target's, looked up and un-rotated in every step of the graph.
    draft = replace(SHAPE, own_embedding=False, norm_before_fc=True).write(folder / "draft")
    eager = Job(str(original), str(draft), pair.prompts(REQUESTS), max_tokens=6, dtype="float32")
    captured = replace(eager, target=str(rotated), capture_sizes=SIZES, poison_padding=True)
    return run_jobs([eager, captured])


def test_replays_propose_what_an_eager_engine_does(outcomes: list[Outcome]) -> None:
    """Rows of padding hold NaN in front of every proposal: none reaches a row of a request."""
    eager, captured = outcomes
    assert not eager.error and not captured.error
    assert captured.replays > 0 and captured.padding > 0
    assert captured.tokens == eager.tokens
    # A padded batch has a row more: of a request that is none.
    proposed = [
        rows[: len(expected)]
        for rows, expected in zip(captured.proposals, eager.proposals, strict=True)
    ]
    assert proposed == eager.proposals
    assert len({token for call in eager.proposals for row in call for token in row}) > 8
    assert "the target's embedding (shared, un-rotated at look-up)" in captured.log
