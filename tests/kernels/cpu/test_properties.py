# SPDX-License-Identifier: Apache-2.0
"""Algebra and memory layout of the native kernels, for any structure."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.plans import structured_plan
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.rotation import Plan

#: fp32 round trip of unit-scale rows: log2(m) + k/4 additions each way, errors of either sign.
ROUND_TRIP = 2e-5


@dataclass(frozen=True)
class Case:
    """A plan and the shape of an input to it."""

    plan: Plan
    rows: int
    blocks: int
    slices: int
    seed: int

    @property
    def size(self) -> int:
        return self.plan.signs.shape[0] * self.blocks

    def x(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(self.rows, self.slices * self.size, generator=generator).to(dtype)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    order = draw(st.sampled_from([1, 12, 28, 160]))
    power = 2 ** draw(st.integers(1, 12 if order == 1 else 6))
    seed = draw(st.integers(0, 2**31))
    return Case(
        plan=structured_plan(order, power, seed),
        rows=draw(st.integers(0, 9)),
        blocks=draw(st.integers(1, 3)),
        slices=draw(st.integers(1, 5)),
        seed=seed,
    )


dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
some = settings(max_examples=60, deadline=None)


@some
@given(cases())
def test_unrotate_undoes_rotate(case: Case) -> None:
    x = case.x()
    assert torch.allclose(ops.unrotate(ops.rotate(x, case.plan), case.plan), x, atol=ROUND_TRIP)
    assert torch.allclose(ops.rotate(ops.unrotate(x, case.plan), case.plan), x, atol=ROUND_TRIP)


@some
@given(cases(), dtypes)
def test_linear(case: Case, dtype: torch.dtype) -> None:
    x = case.x(dtype)
    y = ops.unrotate(x, case.plan)
    # Multiplying by a power of two commutes with every rounding of normal numbers.
    normal = y.float().abs() > torch.finfo(dtype).smallest_normal
    assert torch.equal(ops.unrotate(x * 4, case.plan)[normal], (y * 4)[normal])
    x, other = case.x(), case.x().flip(-1)
    together = ops.unrotate(x + other, case.plan)
    apart = ops.unrotate(x, case.plan) + ops.unrotate(other, case.plan)
    assert torch.allclose(together, apart, atol=ROUND_TRIP)


@some
@given(cases(), dtypes, st.data())
def test_slices_and_rows_are_independent(
    case: Case, dtype: torch.dtype, data: st.DataObject
) -> None:
    if case.rows == 0:
        return
    x = case.x(dtype)
    row = data.draw(st.integers(0, case.rows - 1))
    slice_ = data.draw(st.integers(0, case.slices - 1))
    changed = x.clone().view(case.rows, case.slices, -1)
    changed[row, slice_] = float("nan")
    before = ops.unrotate(x, case.plan).view(case.rows, case.slices, -1)
    after = ops.unrotate(changed.view_as(x), case.plan).view(case.rows, case.slices, -1)
    assert bool(after[row, slice_].isnan().all())
    after[row, slice_] = before[row, slice_]
    assert torch.equal(after, before)


@some
@given(cases(), dtypes, st.integers(1, 40))
def test_strided_and_padded_inputs(case: Case, dtype: torch.dtype, padding: int) -> None:
    x = case.x(dtype)
    expected = ops.unrotate(x, case.plan)
    padded = torch.nn.functional.pad(x, (padding, padding), value=float("nan"))
    view = padded[:, padding:-padding]
    assert torch.equal(ops.unrotate(view, case.plan), expected)
    assert torch.equal(ops.unrotate(x.t().contiguous().t(), case.plan), expected)
    spread = torch.stack([x, torch.full_like(x, float("nan"))], dim=1)
    assert torch.equal(ops.unrotate(spread[:, 0], case.plan), expected)

    aux = list(view.split(case.size, dim=-1))
    assert torch.equal(ops.unrotate_concat(aux, case.plan), expected)

    ops.unrotate_(view, case.plan)
    assert torch.equal(view, expected)
    assert bool(padded[:, :padding].isnan().all() and padded[:, -padding:].isnan().all())
    transposed = x.t().contiguous().t()
    assert torch.equal(ops.unrotate_(transposed, case.plan), expected)
    assert torch.equal(transposed, expected)
