# SPDX-License-Identifier: Apache-2.0
"""int8 products against integers, on this machine and as a machine without VNNI computes them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_eagle3_quarot.integrations.cpu import int8_gemm
from vllm_eagle3_quarot.integrations.cpu.int8_gemm import (
    ChunkedFp32Gemm,
    OneDnnGemm,
    make_int8_gemm,
)

#: Unit roundoff: the result is rounded to the dtype once.
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

#: Of the fp32 arithmetic before that: integer to fp32, times the scale.
FP32_STEPS = 2 * 2.0**-24

#: What /proc/cpuinfo calls the instructions that sum int8 products in int32.
VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}


def cpu_flags() -> set[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def random_int8(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator)


def assert_exact(kind: type, tokens: int, k: int, n: int, zero: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(k * n + tokens)
    x_q = random_int8(tokens, k, generator=generator)
    weight = random_int8(n, k, generator=generator)
    scale = torch.rand(n, generator=generator) * 1e-5 + 1e-7
    out = kind(weight, scale, zero, dtype)(x_q)

    integers = (x_q.to(torch.int64) - zero) @ weight.to(torch.int64).t()
    expected = integers.to(torch.float64) * scale.to(torch.float64)
    tolerance = (ROUNDOFF[dtype] + FP32_STEPS) * expected.abs()
    if dtype is torch.float16:
        tolerance += 2.0**-25  # half of fp16's smallest subnormal
    assert out.dtype is dtype
    assert ((out.to(torch.float64) - expected).abs() <= tolerance).all()


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@settings(deadline=None, max_examples=10)  # each makes oneDNN generate code
@given(
    tokens=st.integers(1, 40),
    k=st.sampled_from([1, 33, 192, 1024, 1025, 2560]),
    n=st.integers(1, 100),
    zero=st.integers(-128, 127),
)
def test_this_machines_product_is_exact(
    dtype: torch.dtype, tokens: int, k: int, n: int, zero: int
) -> None:
    assert_exact(make_int8_gemm, tokens, k, n, zero, dtype)


@settings(deadline=None, max_examples=25)
@given(
    tokens=st.integers(1, 40),
    k=st.sampled_from([1, 33, 192, 1024, 1025, 2560]),
    n=st.integers(1, 100),
    zero=st.integers(-128, 127),
)
def test_fallback_is_exact(tokens: int, k: int, n: int, zero: int) -> None:
    assert_exact(ChunkedFp32Gemm, tokens, k, n, zero, torch.float32)


@pytest.mark.parametrize("value", [127, -128])
def test_fallback_at_its_bound(value: int) -> None:
    """1024 products of the largest magnitude fill fp32's 24 bits to the last."""
    x_q = torch.full((1, 4096), value, dtype=torch.int8)
    weight = torch.full((1, 4096), value, dtype=torch.int8)
    out = ChunkedFp32Gemm(weight, torch.ones(1), 0, torch.float32)(x_q)
    assert out.item() == value * value * 4096


def test_inexact_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_gemm, "onednn_is_exact", lambda dtype, *, per_token: False)
    weight = torch.ones(4, 8, dtype=torch.int8)
    assert isinstance(make_int8_gemm(weight, torch.ones(4), 0, torch.float32), ChunkedFp32Gemm)


def test_exact_kernel_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_gemm, "onednn_is_exact", lambda dtype, *, per_token: True)
    weight = torch.ones(4, 8, dtype=torch.int8)
    assert isinstance(make_int8_gemm(weight, torch.ones(4), 0, torch.float32), OneDnnGemm)


@pytest.mark.skipif(not cpu_flags() & VNNI, reason="this CPU has no VNNI, so the kernel overflows")
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDOFF))
def test_cpu_with_vnni_runs_the_int8_kernel(dtype: torch.dtype, per_token: bool) -> None:
    """Also while a model is loaded, when torch's default dtype is the model's."""
    stock = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert int8_gemm.onednn_is_exact.__wrapped__(dtype, per_token=per_token)
    finally:
        torch.set_default_dtype(stock)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the fault is of x86's vpmaddubsw")
def test_cpu_without_vnni_is_recognised() -> None:
    """oneDNN, told to use AVX2 only, saturates; the probe must see it and the answer stay exact."""
    script = (
        "import torch, vllm._custom_ops\n"
        "from vllm_eagle3_quarot.integrations.cpu.int8_gemm import *\n"
        "assert not onednn_is_exact(torch.float32, per_token=True)\n"
        "x_q = torch.full((1, 192), 127, dtype=torch.int8)\n"
        "out = make_int8_gemm(x_q, torch.ones(1), 0, torch.float32)(x_q)\n"
        "assert out.item() == 127 * 127 * 192, out\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "no VNNI instructions" in result.stdout + result.stderr
