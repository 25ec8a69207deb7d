# SPDX-License-Identifier: Apache-2.0
"""A call allocates its output and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.support.plans import real_plan
from vllm_eagle3_quarot import ops


@pytest.mark.parametrize("size", [96, 2560, 4096])
def test_a_call_allocates_its_output_only(size: int) -> None:
    plan = real_plan(size)
    states = [torch.randn(40, size).bfloat16() for _ in range(3)]
    x = torch.cat(states, dim=-1)
    table = states[0]
    ids = torch.tensor([1, 7, 3])
    gamma = torch.ones(3 * size)
    calls: list[tuple[Callable[[], torch.Tensor], bool]] = [
        (lambda: ops.unrotate(x, plan), True),
        (lambda: ops.rotate(x, plan), True),
        (lambda: ops.unrotate_concat(states, plan), True),
        (lambda: ops.unrotate_norm(states, plan, gamma, 1e-6), True),
        (lambda: ops.embedding_unrotate(ids, table, plan), True),
        (lambda: ops.unrotate_(x, plan), False),
    ]
    for call, has_output in calls:
        call()  # the first one makes each thread's scratch memory
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            result = call()
        sizes = [event.self_cpu_memory_usage for event in record.events()]
        expected = [result.numel() * result.element_size()] if has_output else []
        assert [used for used in sizes if used > 0] == expected
