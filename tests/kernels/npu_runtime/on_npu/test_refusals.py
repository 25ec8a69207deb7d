# SPDX-License-Identifier: Apache-2.0
"""Bad arguments: an error with the op's name and what it got, before anything is launched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.ascendc.harness.cases import rotation_for
from tests.kernels.npu_runtime.on_npu.launches import Launches
from tests.kernels.npu_runtime.on_npu.tensors import Plan, plan_on_npu

OPS = torch.ops.eagle3_quarot
HIDDEN = 3072


def row(*shape: int) -> torch.Tensor:
    return torch.zeros(*(shape or (2, HIDDEN))).bfloat16().to("npu")


REFUSED: dict[str, tuple[Callable[[Plan], object], str]] = {
    "width": (
        lambda plan: OPS.unrotate(row(2, HIDDEN - 1), *plan),
        r"unrotate: x has shape \[2, 3071\].*block of 3072 channels",
    ),
    "width in place": (
        lambda plan: OPS.unrotate_(row(2, HIDDEN + 1), *plan),
        r"unrotate_: x has shape \[2, 3073\].*block of 3072 channels",
    ),
    "type": (
        lambda plan: OPS.unrotate(torch.zeros(2, HIDDEN, dtype=torch.int32).to("npu"), *plan),
        "unrotate: x is Int; float, bfloat16 or half expected",
    ),
    "power": (
        lambda plan: OPS.rotate(row(), plan[0], plan[1], 2 * plan[2]),
        r"rotate: signs \[3072\], factor \[12, 12\] and power 512",
    ),
    "rotation on the host": (
        lambda plan: OPS.unrotate(row(), plan[0].cpu(), plan[1].cpu(), plan[2]),
        r"unrotate: x is on npu:0, the rotation on cpu; use Rotation\.plan_on",
    ),
    "factor on the host": (
        lambda plan: OPS.unrotate(row(), plan[0], plan[1].cpu(), plan[2]),
        "unrotate: signs are on npu:0, factor on cpu",
    ),
    "one state on the host": (
        lambda plan: OPS.unrotate_concat([row(), row().cpu()], *plan),
        "unrotate_concat: aux.* is on cpu, the rotation on npu:0",
    ),
    "uneven tokens": (
        lambda plan: OPS.unrotate_concat([row(), row(3, HIDDEN)], *plan),
        r"unrotate_concat: aux .*\[3, 3072\].*does not go beside.*\[2, 3072\]",
    ),
    "norm scales": (
        lambda plan: OPS.unrotate_norm([row()], *plan, [torch.ones(5).to("npu")], 1e-6),
        "unrotate_norm: norm scales cover 5 of 3072 channels",
    ),
    "norm scale on the host": (
        lambda plan: OPS.unrotate_norm([row()], *plan, [torch.ones(HIDDEN)], 1e-6),
        r"unrotate_norm: a norm scale is Float \[3072\] on cpu",
    ),
    "ids": (
        lambda plan: OPS.embedding_unrotate(torch.zeros(2).to("npu"), row(), *plan, 0, 2),
        "embedding_unrotate: ids are Float on npu:0; int or long",
    ),
    "vocabulary": (
        lambda plan: OPS.embedding_unrotate(torch.tensor([0]).to("npu"), row(), *plan, 0, 3),
        "embedding_unrotate: ids from 0 to before 3 do not fit a table of 2 rows",
    ),
    "multiplier": (
        lambda plan: OPS.rotate(row(), *plan, torch.ones(5).to("npu")),
        r"rotate: multiplier is Float \[5\] on npu:0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(launches: Launches, name: str) -> None:
    call, words = REFUSED[name]
    plan = plan_on_npu(rotation_for((HIDDEN, HIDDEN, 12)))

    def attempt() -> None:
        with pytest.raises(ValueError, match=f"eagle3_quarot::{words}"):
            call(plan)

    assert launches.during(attempt).count == 0
