# SPDX-License-Identifier: Apache-2.0
"""How a launch reaches the device: stream, cores, thread, and what it does not do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from tests.kernels.ascendc.harness import reference
from tests.kernels.ascendc.harness.cases import exact_slices, gaussian, rotation_for
from tests.kernels.npu_runtime.fake_cann.activate import FakeCann
from tests.kernels.npu_runtime.on_npu.launches import Launches, npu
from tests.kernels.npu_runtime.on_npu.tensors import DTYPES, on_npu, plan_on_npu, stored

OPS = torch.ops.eagle3_quarot
FACTORED = (3072, 3072, 12)


def test_launches_go_to_the_current_stream(launches: Launches) -> None:
    rotation = rotation_for(FACTORED)
    x = gaussian(np.random.default_rng(1), (2, rotation.hidden))
    plan = plan_on_npu(rotation)
    tensor = on_npu(reference.encode(x, "bf16"))
    streams = [npu().Stream(), npu().Stream()]
    assert len({stream.npu_stream for stream in (*streams, npu().default_stream())}) == 3
    for stream in (*streams, npu().default_stream(), *reversed(streams)):
        with npu().stream(stream):
            made = launches.during(lambda: OPS.unrotate(tensor, *plan))
        assert made.count == 1
        assert made.stream == stream.npu_stream
        exact = exact_slices(rotation, x, "bf16")
        reference.accept(stored(made.result), exact, "bf16")


def test_one_core_per_row_up_to_the_devices_vector_cores(launches: Launches) -> None:
    """48 vector cores, as the runtime says; a single block cannot be divided further."""
    plan = plan_on_npu(rotation_for(FACTORED))
    for tokens, slices, cores in ((1, 1, 1), (1, 3, 3), (15, 3, 45), (17, 3, 48), (97, 1, 48)):
        x = torch.zeros(tokens, slices * FACTORED[0]).to("npu")
        assert launches.during(partial(OPS.unrotate, x, *plan)).cores == cores


def test_who_launches(launches: Launches, task_queue: bool) -> None:
    """With the task queue, the handler runs after the op returned, in another thread."""
    plan = plan_on_npu(rotation_for(FACTORED))
    x = torch.zeros(2, FACTORED[0]).to("npu")
    assert launches.during(lambda: OPS.unrotate(x, *plan)).by_caller is not task_queue


def test_many_launches_in_a_row_keep_their_arguments(launches: Launches) -> None:
    """Temporaries of the host are gone when the last of them runs."""
    rotation = rotation_for(FACTORED)
    states = [gaussian(np.random.default_rng(i), (1, rotation.hidden)) for i in range(20)]
    plan = plan_on_npu(rotation)
    tensors = [on_npu(reference.encode(x, "f16")) for x in states]
    made = launches.during(lambda: [OPS.unrotate_concat([x, x], *plan) for x in tensors])
    assert made.count == len(states)
    got = np.concatenate([stored(result).reshape(2, -1) for result in made.result])
    exact = exact_slices(rotation, np.repeat(np.concatenate(states), 2, axis=0), "f16")
    reference.accept(got, exact, "f16")


def test_a_warm_op_waits_for_nothing_and_allocates_its_output(
    launches: Launches, fake_cann: FakeCann
) -> None:
    plan = plan_on_npu(rotation_for(FACTORED))
    parts = [torch.zeros(4, FACTORED[0]).bfloat16().to("npu") for _ in range(3)]
    gammas = [torch.ones(FACTORED[0]).to("npu") for _ in range(3)]
    ids, table = torch.tensor([1, 2]).to("npu"), parts[0]
    whole = torch.zeros(4, 3 * FACTORED[0]).bfloat16().to("npu")
    calls: dict[str, Callable[[], object]] = {
        "unrotate": lambda: OPS.unrotate(whole, *plan),
        "unrotate_": lambda: OPS.unrotate_(whole, *plan),
        "unrotate_concat": lambda: OPS.unrotate_concat(parts, *plan),
        "unrotate_norm": lambda: OPS.unrotate_norm(parts, *plan, gammas, 1e-6),
        "embedding_unrotate": lambda: OPS.embedding_unrotate(ids, table, *plan, 0, 4),
        "rotate": lambda: OPS.rotate(whole, *plan, gammas[0]),
    }
    for name, call in calls.items():
        call()  # the first one copies the small factor to the host
        npu().synchronize()
        before = fake_cann.synchronisations, fake_cann.copies, allocations()
        result = call()
        after = fake_cann.synchronisations, fake_cann.copies, allocations()
        outputs = 0 if name == "unrotate_" else 1
        assert after == (before[0], before[1], before[2] + outputs), name
        del result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slices", (1, 3))
def test_no_tokens_no_launch(launches: Launches, dtype: str, slices: int) -> None:
    plan = plan_on_npu(rotation_for(FACTORED))
    hidden = FACTORED[0]
    part = torch.empty(0, hidden, dtype=DTYPES[dtype], device="npu")
    whole = torch.empty(0, slices * hidden, dtype=DTYPES[dtype], device="npu")
    gammas = [torch.ones(hidden).to("npu")] * slices
    table = torch.empty(3, hidden, dtype=DTYPES[dtype], device="npu")
    no_ids = torch.empty(0, dtype=torch.int64, device="npu")

    def calls() -> list[torch.Tensor]:
        OPS.unrotate_(whole, *plan)
        return [
            OPS.unrotate(whole, *plan),
            OPS.unrotate_concat([part] * slices, *plan),
            OPS.unrotate_norm([part] * slices, *plan, gammas, 1e-6),
            OPS.rotate(whole, *plan),
        ]

    made = launches.during(calls)
    assert made.count == 0
    assert all(result.shape == whole.shape for result in made.result)
    none = launches.during(lambda: OPS.embedding_unrotate(no_ids, table, *plan, 0, 3))
    assert none.count == 0 and none.result.shape == (0, hidden)


def allocations() -> int:
    """Allocations from torch_npu's caching allocator so far."""
    return int(npu().memory_stats()["allocation.all.allocated"])
