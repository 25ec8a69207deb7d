# SPDX-License-Identifier: Apache-2.0
"""Built-in operators computed by the CPU over the fake device's memory, for as long as asked for.

Only those that the product's matmul path names. Each insists that its tensors are where the device
would need them: one operand left on the host is an error here as it is there.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

OPERATORS = (
    "add.Scalar",
    "bmm",
    "cat",
    "clone",
    "copy_",
    "ge.Scalar",
    "index_select",
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
                library.impl(name, _on_host(operator), "PrivateUse1", allow_override=True)
        yield
    finally:
        library._destroy()


def _on_host(operator: torch._ops.OpOverload) -> Any:
    in_place = operator.name().split(".")[0].endswith("_")
    moves = operator is torch.ops.aten.copy_.default

    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if torch.is_tensor(leaf)]
        stray = [leaf for leaf in tensors if leaf.device.type == "cpu" and leaf.dim() > 0]
        if stray and not moves:
            raise RuntimeError(f"{operator}: an operand of shape {stray[0].shape} is on the host")
        args, kwargs = pytree.tree_map_only(torch.Tensor, _memory_of, (args, kwargs))
        result = operator(*args, **kwargs)
        if in_place:
            return tensors[0]
        output = torch.empty_strided(
            result.size(), result.stride(), dtype=result.dtype, device="npu"
        )
        _memory_of(output).copy_(result)
        return output

    return call


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the memory of ``tensor``, which the fake runtime keeps on the host."""
    if tensor.device.type == "cpu":
        return tensor
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty(tensor.size(), dtype=tensor.dtype)
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
