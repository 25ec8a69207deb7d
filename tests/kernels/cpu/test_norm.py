# SPDX-License-Identifier: Apache-2.0
"""unrotate_norm: RMSNorm of the un-rotated states with vLLM's roundings."""

from __future__ import annotations

import pytest
import torch

from tests.support.plans import dense_plan, exact_unrotate, real_plan
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.rotation import Plan

EPS = 1e-5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
PLANS = {
    "64": real_plan(64),
    "28 x 8": real_plan(224),
    "160 x 16": real_plan(2560),
    "4096": real_plan(4096),
    "dense": dense_plan(50),
}

#: The order of fp32 sums differs, so that now and then a value falls on the other side of a
#: rounding boundary: by one unit in the last place, and rarely.
RARELY = 0.01
FP32_SUMS = 3e-6


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``vllm/ir/ops/layernorm.py: rms_norm`` of vLLM 0.23, for fp32 ``x`` and output ``dtype``."""
    variance = x.pow(2).mean(dim=-1, keepdim=True)
    x = x * torch.rsqrt(variance + EPS)
    return (x.to(weight.dtype) * weight).to(dtype)


def assert_same_roundings(
    got: torch.Tensor, expected: torch.Tensor, gamma_dtype: torch.dtype | None = None
) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    # The rounding before gamma is to gamma's dtype, which may be the coarser one.
    eps = max(torch.finfo(dtype).eps for dtype in (got.dtype, gamma_dtype or got.dtype))
    step = eps * expected.double().abs()
    # Two roundings (before and after gamma) make two steps; the fp32 values below are sums of
    # unit-scale terms, whose roundings do not shrink with the value.
    assert bool(((got.double() - expected.double()).abs() <= 2 * step + FP32_SUMS).all())
    if got.dtype != torch.float32:
        assert (got != expected).double().mean().item() <= RARELY


@pytest.mark.parametrize("slices", [1, 2, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_both_norms_take_list_or_concatenation(plan: Plan, dtype: torch.dtype, slices: int) -> None:
    size = plan.signs.shape[0]
    aux = [(torch.randn(6, size) * (2 + index)).to(dtype) for index in range(slices)]
    x = torch.cat(aux, dim=-1)
    gamma = (torch.rand(slices, size) + 0.5).to(dtype)
    rows = exact_unrotate(x, plan).float()

    whole = rms_norm(rows, gamma.flatten(), dtype)
    parts = rows.split(size, dim=-1)
    sliced = torch.cat(
        [rms_norm(part, g, dtype) for part, g in zip(parts, gamma, strict=True)], dim=-1
    )
    for states in (x, aux):
        assert_same_roundings(ops.unrotate_norm(states, plan, gamma.flatten(), EPS), whole)
        assert_same_roundings(ops.unrotate_norm(states, plan, gamma, EPS), sliced)
        assert_same_roundings(ops.unrotate_norm(states, plan, list(gamma), EPS), sliced)
    if slices > 1:
        assert not torch.allclose(whole, sliced)


@pytest.mark.parametrize("gamma_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_pair_of_dtypes(dtype: torch.dtype, gamma_dtype: torch.dtype) -> None:
    plan = PLANS["28 x 8"]
    x = torch.randn(6, 448).to(dtype)
    gamma = (torch.rand(448) + 0.5).to(gamma_dtype)
    expected = rms_norm(exact_unrotate(x, plan).float(), gamma, dtype)
    assert_same_roundings(ops.unrotate_norm(x, plan, gamma, EPS), expected, gamma_dtype)


def test_equals_unrotate_then_norm_up_to_one_rounding_less(plan: Plan) -> None:
    """Fused, the un-rotated values are not rounded to bf16 before the norm."""
    x = torch.randn(6, 2 * plan.signs.shape[0]).bfloat16()
    gamma = torch.ones(x.shape[1]).bfloat16()
    separate = rms_norm(ops.unrotate(x, plan).float(), gamma, torch.bfloat16)
    fused = ops.unrotate_norm(x, plan, gamma, EPS)
    # bf16 keeps 8 bits; two roundings against one on values up to 4.
    assert torch.allclose(fused.float(), separate.float(), rtol=2**-7, atol=1e-3)


def test_no_rows(plan: Plan) -> None:
    x = torch.empty(0, 3 * plan.signs.shape[0])
    assert ops.unrotate_norm(x, plan, torch.ones(x.shape[1]), EPS).shape == x.shape


def test_a_nan_stays_in_its_row(plan: Plan) -> None:
    x = torch.randn(3, 2 * plan.signs.shape[0])
    gamma = torch.rand(x.shape[1])
    clean = ops.unrotate_norm(x, plan, gamma, EPS)
    x[1] = float("nan")
    assert torch.equal(ops.unrotate_norm(x, plan, gamma, EPS)[[0, 2]], clean[[0, 2]])
