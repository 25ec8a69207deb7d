# SPDX-License-Identifier: Apache-2.0
"""``torch.library.opcheck`` of every op with tensors on the NPU: schema, fake kernel, tracing.

The checks clone, compare and trace with built-in operators, which the CPU computes.
"""

from __future__ import annotations

import pytest
import torch

from tests.kernels.ascendc.harness.cases import rotation_for
from tests.kernels.npu_runtime.on_npu.tensors import plan_on_npu

HIDDEN = 3072


@pytest.mark.parametrize("tokens", (0, 3))
@pytest.mark.parametrize(
    "op",
    ("unrotate", "unrotate_", "unrotate_concat", "unrotate_norm", "embedding_unrotate", "rotate"),
)
def test_opcheck(on_host: None, op: str, tokens: int) -> None:
    plan = plan_on_npu(rotation_for((HIDDEN, HIDDEN, 12)))
    generator = torch.Generator().manual_seed(tokens)

    def states(rows: int, width: int = HIDDEN) -> torch.Tensor:
        return torch.randn(rows, width, generator=generator).bfloat16().to("npu")

    aux = [states(tokens) for _ in range(2)]
    gammas = [states(1).view(-1) for _ in aux]
    ids = (torch.arange(tokens) + 2).to("npu")
    arguments = {
        "unrotate": (states(tokens, 2 * HIDDEN), *plan),
        "unrotate_": (states(tokens, 2 * HIDDEN), *plan),
        "unrotate_concat": (aux, *plan),
        "unrotate_norm": (aux, *plan, gammas, 1e-5),
        "embedding_unrotate": (ids, states(4), *plan, 1, 4),
        "rotate": (states(tokens, 2 * HIDDEN), *plan, torch.ones(HIDDEN).to("npu")),
    }[op]
    torch.library.opcheck(getattr(torch.ops.eagle3_quarot, op).default, arguments)
