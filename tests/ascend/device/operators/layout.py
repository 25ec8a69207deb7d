# SPDX-License-Identifier: Apache-2.0
"""Storage formats of the device: the CPU's matrices have one, so a cast changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def format_cast(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return x


def matmul_add_fp32(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor) -> None:
    """``total += xᵀ weight``; vllm-ascend warms the device up with it."""
    total.add_(x.float().t() @ weight.float())


OPERATORS: dict[str, Callable[..., Any]] = {
    "npu::npu_format_cast": format_cast,
    "npu::npu_format_cast.Tensor": format_cast,
    "npu::npu_format_cast_": format_cast,
    "npu::npu_format_cast_.acl_format": format_cast,
    "atb::_npu_matmul_add_fp32": matmul_add_fp32,
}
