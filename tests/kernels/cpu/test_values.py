# SPDX-License-Identifier: Apache-2.0
"""Native CPU kernels against fp64 and against the composite reference."""

from __future__ import annotations

import pytest
import torch

from tests.support.plans import dense_plan, exact_rotate, exact_unrotate, real_plan, structured_plan
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.ops import reference
from vllm_eagle3_quarot.rotation import Plan


def shape_of(plan: Plan) -> str:
    return f"{plan.factor.shape[0]}x{plan.power}"


DTYPES = [torch.float32, torch.bfloat16, torch.float16]
#: Channels of the smallest output that is written past the caches (csrc/cpu/binding.cpp).
LARGE_OUTPUT = 1 << 20

SIZES = [64, 96, 192, 224, 320, 2048, 2560, 3072, 3584, 4096, 5120, 7168]

#: The accuracy rule: not more than this many times the error of the same formula in plain torch.
ERROR_RATIO = 2.0
#: Both errors are sums of fp32 roundings of unit-scale values; below this they are noise.
ERROR_FLOOR = 2e-7


def assert_accurate(got: torch.Tensor, torch_result: torch.Tensor, exact: torch.Tensor) -> None:
    assert got.dtype == torch_result.dtype
    assert got.shape == exact.shape
    if exact.numel() == 0:
        return
    error = (got.double() - exact).abs().max().item()
    allowed = (torch_result.double() - exact).abs().max().item()
    assert error <= ERROR_RATIO * allowed + ERROR_FLOOR


@pytest.mark.parametrize("rows", [0, 1, 5, 33])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_unrotate_and_rotate(size: int, dtype: torch.dtype, rows: int) -> None:
    plan = real_plan(size)
    x = torch.randn(rows, 2 * size).to(dtype)
    assert_accurate(ops.unrotate(x, plan), reference.unrotate(x, *plan), exact_unrotate(x, plan))
    assert_accurate(ops.rotate(x, plan), reference.rotate(x, *plan), exact_rotate(x, plan))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "plan",
    [
        structured_plan(1, 2),
        structured_plan(1, 128),
        structured_plan(1, 8192),
        structured_plan(1, 16384),
        structured_plan(12, 1),
        structured_plan(12, 2),
        structured_plan(28, 4),
        structured_plan(160, 8),
        dense_plan(50),
        # No factor of +-1: orthogonal all the same.
        Plan(torch.full((7 * 32,), 32**-0.5), dense_plan(7).factor, 32),
        Plan(torch.full((9 * 4,), 4**-0.5), dense_plan(9).factor, 4),
        # A factor beyond the size that the kernels take.
        Plan(torch.full((300 * 8,), 8**-0.5), dense_plan(300).factor, 8),
        Plan(torch.full((64,), 0.125), torch.full((1, 1), -1.0), 64),
    ],
    ids=shape_of,
)
def test_unusual_structures(plan: Plan, dtype: torch.dtype) -> None:
    x = torch.randn(3, 2 * plan.signs.shape[0]).to(dtype)
    assert_accurate(ops.unrotate(x, plan), reference.unrotate(x, *plan), exact_unrotate(x, plan))
    assert_accurate(ops.rotate(x, plan), reference.rotate(x, *plan), exact_rotate(x, plan))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [96, 2560, 4096, 7168])
def test_large_and_small_values(size: int, dtype: torch.dtype) -> None:
    """Massive activations (x 200) beside subnormals of the dtype."""
    plan = real_plan(size)
    x = torch.randn(4, size)
    x[:, 3::97] *= 200
    x[2] = torch.finfo(dtype).smallest_normal / 8
    x = x.to(dtype)
    exact = exact_unrotate(x, plan)
    got, expected = ops.unrotate(x, plan), reference.unrotate(x, *plan)
    for row in range(4):
        error = (got[row].double() - exact[row]).abs().max()
        # No floor here: a row of subnormals has to be right on its own scale.
        assert error <= ERROR_RATIO * (expected[row].double() - exact[row]).abs().max()


@pytest.mark.parametrize("size", [64, 224, 2560, 4096])
@pytest.mark.parametrize("slices", [1, 2, 5])
def test_concat_and_in_place_equal_unrotate_bit_for_bit(size: int, slices: int) -> None:
    plan = real_plan(size)
    for rows in (0, 1, 40):
        aux = [torch.randn(rows, size).bfloat16() for _ in range(slices)]
        x = torch.cat(aux, dim=-1)
        expected = ops.unrotate(x, plan)
        assert torch.equal(ops.unrotate_concat(aux, plan), expected)
        assert torch.equal(ops.unrotate_(x, plan), expected)


def test_parts_of_different_widths() -> None:
    plan = structured_plan(1, 32)
    aux = [torch.randn(3, 32 * blocks) for blocks in (1, 4, 2)]
    expected = ops.unrotate(torch.cat(aux, dim=-1), plan)
    assert torch.equal(ops.unrotate_concat(aux, plan), expected)


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("plan", [real_plan(96), real_plan(2560), dense_plan(50)], ids=shape_of)
def test_embedding(plan: Plan, dtype: torch.dtype, ids_dtype: torch.dtype) -> None:
    table = torch.randn(8, plan.signs.shape[0]).to(dtype)
    table[0] = float("nan")
    ids = torch.tensor([[3, 4, 10], [11, 2, -1]], dtype=ids_dtype)
    got = ops.embedding_unrotate(ids, table, plan, vocab_start=3, vocab_end=11)
    assert bool(got[0, 0].isnan().all())
    rows = table[[1, 7]]
    assert_accurate(got[0, 1:], reference.unrotate(rows, *plan), exact_unrotate(rows, plan))
    assert bool((got[1] == 0).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("plan", [real_plan(224), real_plan(4096), dense_plan(50)], ids=shape_of)
def test_rotate_divides_by_the_norm_scale(plan: Plan, dtype: torch.dtype) -> None:
    size = plan.signs.shape[0]
    scale = torch.rand(size) + 0.5
    x = torch.randn(5, 2 * size).to(dtype)
    exact = exact_rotate((x.double().view(5, 2, size) / scale.double()).view(5, -1), plan)
    got = ops.rotate(x, plan, 1 / scale)
    assert_accurate(got, reference.rotate(x, *plan, 1 / scale), exact)


def test_a_multiplier_spans_several_blocks() -> None:
    plan = structured_plan(1, 32)
    multiplier = torch.rand(96) + 0.5
    x = torch.randn(5, 192)
    exact = exact_rotate((x.double().view(5, 2, 96) * multiplier.double()).view(5, -1), plan)
    assert_accurate(ops.rotate(x, plan, multiplier), reference.rotate(x, *plan, multiplier), exact)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_of_any_payload_stays_nan(dtype: torch.dtype) -> None:
    """Memory full of ones is a NaN whose lower half would carry over in rounding."""
    plan = real_plan(4096)
    nan = torch.full((4096,), -1, dtype=torch.int32).view(torch.float32)
    x = torch.randn(3, 4096).to(dtype)
    assert bool(ops.rotate(x, plan, nan).isnan().all())
    assert bool(ops.unrotate_norm([x], plan, [nan], 1e-6).isnan().all())
    row = nan.expand(3, -1).contiguous()
    assert bool(ops.unrotate_norm([row], plan, [torch.ones(4096, dtype=dtype)], 1e-6).isnan().all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [96, 192, 2560, 3072, 4096])
def test_outputs_beyond_the_caches(size: int, dtype: torch.dtype) -> None:
    """A large output is written past the caches: the same bits as piece by piece."""
    plan = real_plan(size)
    states = [torch.randn(LARGE_OUTPUT // (2 * size) + 1, size).to(dtype) for _ in range(2)]
    whole = ops.unrotate_concat(states, plan)
    pieces = zip(*(state.split(16) for state in states), strict=True)
    assert torch.equal(whole, torch.cat([ops.unrotate_concat(list(p), plan) for p in pieces]))
