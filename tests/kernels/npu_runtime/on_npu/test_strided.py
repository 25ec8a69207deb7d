# SPDX-License-Identifier: Apache-2.0
"""Inputs that the kernel cannot read or write where they are: the device copies them first."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.kernels.ascendc.harness import reference
from tests.kernels.ascendc.harness.cases import exact_slices, gaussian, rotation_for
from tests.kernels.npu_runtime.on_npu.launches import Launches
from tests.kernels.npu_runtime.on_npu.tensors import (
    DTYPES,
    on_npu,
    padded_on_npu,
    plan_on_npu,
    stored,
)

OPS = torch.ops.eagle3_quarot
STRUCTURE = (256, 256, 1)
TOKENS = 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_apart(launches: Launches, on_host: None, dtype: str) -> None:
    """The transpose of a `[H, T]` tensor."""
    rotation = rotation_for(STRUCTURE)
    x = gaussian(np.random.default_rng(2), (TOKENS, rotation.hidden))
    bits = reference.encode(x, dtype)
    columns = on_npu(np.ascontiguousarray(bits.T)).t()
    made = launches.during(lambda: OPS.unrotate_concat([columns], *plan_on_npu(rotation)))
    assert made.count == 1
    reference.accept(stored(made.result), exact_slices(rotation, x, dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_between_other_columns(launches: Launches, on_host: None, dtype: str) -> None:
    """Rows of a wider tensor are written, their neighbours are not."""
    rotation = rotation_for(STRUCTURE)
    x = gaussian(np.random.default_rng(3), (TOKENS, rotation.hidden))
    rows = padded_on_npu(reference.encode(x, dtype), 16)
    made = launches.during(lambda: OPS.unrotate_(rows, *plan_on_npu(rotation)))
    assert made.count == 1
    whole = stored(rows.as_strided((TOKENS, rotation.hidden + 16), (rotation.hidden + 16, 1)))
    exact = exact_slices(rotation, x, dtype)
    reference.accept(whole[:, : rotation.hidden], exact, dtype)
    assert not whole[:, rotation.hidden :].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_leading_dimensions(launches: Launches, dtype: str) -> None:
    """`[2, 4, A * H]` is eight rows; no copy is needed."""
    rotation = rotation_for(STRUCTURE)
    x = gaussian(np.random.default_rng(4), (TOKENS, 3 * rotation.hidden))
    tensor = on_npu(reference.encode(x, dtype)).view(2, 4, -1)
    made = launches.during(lambda: OPS.unrotate(tensor, *plan_on_npu(rotation)))
    assert made.count == 1 and made.result.shape == tensor.shape
    got = stored(made.result).reshape(-1, rotation.hidden)
    reference.accept(got, exact_slices(rotation, x, dtype), dtype)
