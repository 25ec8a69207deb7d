# SPDX-License-Identifier: Apache-2.0
"""The shortest run that touches everything: vllm-ascend's engine and our NPU library.

The library is the product's, unmodified; its kernel runs on emulated cores.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ascend import targets
from tests.ascend.conftest import RunJobs
from tests.ascend.drafts import SHAPE
from tests.ascend.jobs import Job
from tests.support import reference_pair as pair

WIDE = replace(SHAPE, hidden=targets.WIDE, heads=4)


def test_w8a8_quarot_target_and_kernel(
    run_jobs: RunJobs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    original = targets.wide_target(folder / "original")
    rotated = targets.rotated_wide_target(original, folder / "rotated")
    # The three operators of a draft: aux states, the target's table, a norm before fc.
    draft = replace(WIDE, own_embedding=False).write(folder / "draft")
    normed = replace(WIDE, own_embedding=False, norm_before_fc=True).write(folder / "normed")
    trained = Job(str(targets.W8A8_QUAROT), str(pair.DRAFT), pair.prompts(4), max_tokens=16)
    wide = [
        Job(str(target), str(of_target), pair.prompts(2), max_tokens=6, dtype="float32")
        for of_target in (draft, normed)
        for target in (original, rotated)
    ]
    quantised, *others = run_jobs([trained, *wide], kernel=True)
    assert quantised.acceptance > 0.6, quantised.error
    assert "operators on the NPU run as native kernels, AscendC" in quantised.log
    for plain, corrected in zip(others[::2], others[1::2], strict=True):
        assert plain.proposals
        assert corrected.tokens == plain.tokens
        assert corrected.proposals == plain.proposals
        assert plain.launches == 0
        # Each call of the proposer un-rotates aux states, and rows of the table in every pass.
        assert corrected.launches >= 2 * len(corrected.proposals)
