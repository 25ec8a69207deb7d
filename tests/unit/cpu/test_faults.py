# SPDX-License-Identifier: Apache-2.0
"""Repairs of vLLM 0.23.0's CPU stand-ins: needed, right, and only where the fault is."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import vllm._custom_ops  # noqa: F401  loads the compiled stand-ins
from hypothesis import given
from hypothesis import strategies as st
from vllm.utils import cpu_triton_utils as stock

from vllm_eagle3_quarot.integrations.cpu.faults import (
    CheckedExpand,
    expand,
    leaves_output_unwritten,
    repair_faults,
)

#: What the installed vLLM brings, before a test repairs it.
STOCK_EXPAND = stock._expand_kernel_impl
STOCK_RECOVERED = stock._sample_recovered_tokens_kernel_impl


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's stand-ins as released; what a test replaces is put back."""
    for name, function in (
        ("expand_kernel", STOCK_EXPAND),
        ("sample_recovered_tokens_kernel", STOCK_RECOVERED),
    ):
        monkeypatch.setattr(stock, name, stock._FuncWrapper(function))
    return stock


def recover(kernel: Any, inv_q: torch.Tensor, **options: Any) -> list[int]:
    """Two requests with 1 and 2 draft tokens, without draft probabilities; V = 3."""
    output = torch.full((3,), -1, dtype=torch.int32)
    kernel[(2, 2)](
        output,
        torch.tensor([1, 3], dtype=torch.int32),
        torch.tensor([0, 0, 2], dtype=torch.int32),
        None,
        torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.1, 0.6, 0.3]]),
        inv_q,
        3,
        8192,
        NO_DRAFT_PROBS=True,
        **options,
    )
    return output.tolist()


#: Noise of the two requests; the recovered token is the argmax of probability times noise over all
#: tokens but the draft's: (x, .1, .1)*(9,1,2), (x, .3, .5)*(1,4,1), (.1, .6, x)*(1,4,1).
INV_Q = torch.tensor([[9.0, 1.0, 2.0], [1.0, 4.0, 1.0]])
RECOVERED = [2, 1, 1]


def test_stock_sampler_of_recovered_tokens_fails() -> None:
    """vllm-project/vllm#46069: the call of rejection_sampler.py ends in a TypeError."""
    with pytest.raises(TypeError, match="USE_FP64_GUMBEL"):
        recover(stock._FuncWrapper(STOCK_RECOVERED), INV_Q, USE_FP64_GUMBEL=False)


@pytest.mark.parametrize("fp64", [False, True])
def test_repaired_sampler_of_recovered_tokens(stand_ins: Any, fp64: bool) -> None:
    """vllm-project/vllm#46069"""
    repair_faults()
    inv_q = INV_Q.to(torch.float64) if fp64 else INV_Q
    kernel = stand_ins.sample_recovered_tokens_kernel
    assert recover(kernel, inv_q, USE_FP64_GUMBEL=fp64) == RECOVERED
    assert recover(kernel, INV_Q) == RECOVERED


def test_stock_expand_leaves_its_output_unwritten() -> None:
    """vllm-project/vllm#55005"""
    output = torch.full((3,), -1.0)
    STOCK_EXPAND(output, torch.tensor([0.0, 5.0]), torch.tensor([1, 3], dtype=torch.int32), 0, 1)
    assert output.tolist() == [-1, -1, -1]
    assert leaves_output_unwritten(STOCK_EXPAND)


def test_repaired_expand(stand_ins: Any) -> None:
    """vllm-project/vllm#55005"""
    repair_faults()
    ends = torch.tensor([1, 3], dtype=torch.int32)
    for _ in range(2):  # the first launch decides, the next ones use the decision
        output = torch.full((3,), -1.0)
        stand_ins.expand_kernel[(2,)](
            output, torch.tensor([0.0, 0.7]), ends, 0, 1, MAX_NUM_TOKENS=128
        )
        assert output.tolist() == pytest.approx([1.0, 0.7, 0.7], rel=2**-24)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=8),
    st.sampled_from([torch.float32, torch.int32, torch.int64]),
)
def test_expand(requests: list[tuple[int, int]], dtype: torch.dtype) -> None:
    counts = torch.tensor([count for count, _ in requests])
    values = torch.tensor([value for _, value in requests], dtype=dtype)
    output = torch.full((int(counts.sum()),), -1, dtype=dtype)
    expand(output, values, counts.cumsum(0).to(torch.int32), 0, 1, MAX_NUM_TOKENS=128)
    assert output.tolist() == [v or 1 for count, v in requests for _ in range(count)]


def test_second_repair_changes_nothing(stand_ins: Any) -> None:
    repair_faults()
    first = (stand_ins.expand_kernel, stand_ins.sample_recovered_tokens_kernel)
    repair_faults()
    assert (stand_ins.expand_kernel, stand_ins.sample_recovered_tokens_kernel) == first


def test_sampler_without_the_fault_stays_stock(stand_ins: Any) -> None:
    def repaired_upstream(*arguments: Any, USE_FP64_GUMBEL: bool = False) -> None:
        raise AssertionError("not launched here")

    kernel = stock._FuncWrapper(repaired_upstream)
    stand_ins.sample_recovered_tokens_kernel = kernel
    repair_faults()
    assert stand_ins.sample_recovered_tokens_kernel is kernel


@pytest.mark.parametrize("signature", ["same", "other"])
def test_expand_without_the_fault_stays_in_use(signature: str) -> None:
    launches = []

    def works(*arguments: Any, **options: Any) -> None:
        launches.append(arguments)
        expand(*arguments, **options)

    def wants_more(*arguments: Any, new: int, **options: Any) -> None:
        launches.append(arguments)

    kernel = CheckedExpand(works if signature == "same" else wants_more)
    arguments = (torch.zeros(1), torch.ones(1), torch.tensor([1]), 0, 1)
    options = {} if signature == "same" else {"new": 1}
    kernel[(1,)](*arguments, **options)
    assert launches[-1] == arguments


def test_vllm_without_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.utils

    monkeypatch.setitem(sys.modules, "vllm.utils.cpu_triton_utils", None)  # not importable
    monkeypatch.delattr(vllm.utils, "cpu_triton_utils")
    repair_faults()
