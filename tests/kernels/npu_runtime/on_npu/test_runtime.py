# SPDX-License-Identifier: Apache-2.0
"""The fake runtime itself: what it does, and that it does no more."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.npu_runtime.fake_cann.activate import FakeCann
from tests.kernels.npu_runtime.on_npu.launches import npu

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies(fake_cann: FakeCann, dtype: torch.dtype) -> None:
    before = fake_cann.copies
    x = torch.arange(7 * 33).reshape(7, 33).to(dtype)
    y = x.to("npu")
    assert y.device == torch.device("npu", 0)
    assert torch.equal(y.cpu(), x)
    assert fake_cann.copies == before + 2


def test_new_memory_is_not_zero(fake_cann: FakeCann) -> None:
    """Nothing may rely on what `torch.empty` holds: here it is NaN."""
    own_segment = 10_000_000  # 40 MB: too large for memory that was in use before
    npu().empty_cache()
    assert torch.empty(own_segment, device="npu").cpu().isnan().all()


def test_built_in_operators_fail(fake_cann: FakeCann, task_queue: bool) -> None:
    """A result that torch_npu's own operators were to make must never pass for one."""
    if task_queue:
        pytest.skip("an operator that fails on torch_npu's launch thread ends that thread")
    x = torch.ones(4).to("npu")
    before = fake_cann.refused_operators
    with pytest.raises(RuntimeError, match="no built-in operators"):
        x + x
    assert fake_cann.refused_operators == before + 1
