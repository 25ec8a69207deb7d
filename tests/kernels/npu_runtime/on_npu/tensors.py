# SPDX-License-Identifier: Apache-2.0
"""Between the emulator's arrays in storage form (bf16 as uint16) and tensors on the NPU."""

from __future__ import annotations

import numpy as np
import torch

from tests.kernels.ascendc.harness.reference import Array, Rotation

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}

Plan = tuple[torch.Tensor, torch.Tensor, int]


def on_npu(stored: Array) -> torch.Tensor:
    """``stored`` as a contiguous tensor on the NPU; uint16 is taken for bf16."""
    if stored.dtype == np.uint16:
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16).to("npu")
    return torch.from_numpy(np.ascontiguousarray(stored)).to("npu")


def padded_on_npu(stored: Array, padding: int) -> torch.Tensor:
    """``stored`` ``[T, C]`` as a view of a ``[T, C + padding]`` tensor on the NPU."""
    wide = np.zeros((stored.shape[0], stored.shape[1] + padding), stored.dtype)
    wide[:, : stored.shape[1]] = stored
    return on_npu(wide)[:, : stored.shape[1]]


def stored(tensor: torch.Tensor) -> Array:
    """The values of an NPU tensor in storage form."""
    host = tensor.cpu()
    if host.dtype == torch.bfloat16:
        bits: Array = host.view(torch.int16).numpy().view(np.uint16)
        return bits
    array: Array = host.numpy()
    return array


def plan_on_npu(rotation: Rotation) -> Plan:
    """The rotation as the ops take it, on the NPU."""
    signs = on_npu(rotation.scale[: rotation.block])
    return signs, on_npu(rotation.factor.astype(np.float32)), rotation.pow2
