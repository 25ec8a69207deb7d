# SPDX-License-Identifier: Apache-2.0
"""Built-in operators computed by the CPU over the fake device's memory, for as long as asked for.

Only those that the product's matmul path names, and the two by which opcheck compares. Each insists
that its tensors are where the device would need them: one operand left on the host is an error here
as it is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tests.kernels.npu_runtime.host_memory import computed_on_host

OPERATORS = (
    "add.Scalar",
    "all",
    "bmm",
    "cat",
    "clone",
    "copy_",
    "ge.Scalar",
    "index_select",
    "isclose",
    "logical_or",
    "lt.Scalar",
    "masked_fill.Scalar",
    "mean.dim",
    "mm",
    "mul.Tensor",
    "pow.Tensor_Scalar",
    "rsqrt",
    "sub.Scalar",
    "zero_",
)


@contextmanager
def host_operators() -> Iterator[None]:
    """Register the CPU's arithmetic for :data:`OPERATORS` on the NPU until the block ends."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch_npu's kernels are replaced
            for name in OPERATORS:
                packet, _, overload = name.partition(".")
                operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
                moves = operator is torch.ops.aten.copy_.default
                kernel = computed_on_host(operator, host_operands_allowed=moves)
                library.impl(name, kernel, "PrivateUse1", allow_override=True)
        yield
    finally:
        library._destroy()
