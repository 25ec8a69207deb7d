# SPDX-License-Identifier: Apache-2.0
"""Several Python threads in the kernels at once, each with its own rotation and size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from tests.support.plans import structured_plan
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.rotation import Plan


def test_concurrent_calls_do_not_disturb_each_other() -> None:
    plans = [structured_plan(1, 4096, 1), structured_plan(160, 16, 2), structured_plan(28, 4, 3)]
    work: list[tuple[Plan, torch.Tensor, torch.Tensor]] = []
    for plan in plans:
        # 64 rows are enough for torch to spread one call over its own threads as well.
        x = torch.randn(64, 3 * plan.signs.shape[0]).bfloat16()
        work.append((plan, x, ops.unrotate(x, plan)))

    def repeat(index: int) -> bool:
        plan, x, expected = work[index % len(work)]
        return all(torch.equal(ops.unrotate(x, plan), expected) for _ in range(20))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(repeat, range(12)))
