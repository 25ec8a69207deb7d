# SPDX-License-Identifier: Apache-2.0
"""Checks around vLLM's weight loaders, and the two ways in which ``deq_scale`` is stored."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.layer_plan import (
    QUANTISED_TENSORS,
    LinearPlan,
    Scheme,
)
from vllm_eagle3_quarot.integrations.cpu.weight_loading import (
    LayerTensors,
    check_scales,
    scale_from_bits,
)

QKV = LinearPlan("l.qkv_proj", ("l.q_proj", "l.k_proj", "l.v_proj"), Scheme.W8A8)
GATE_UP = LinearPlan("l.gate_up_proj", ("l.gate_proj", "l.up_proj"), Scheme.W8A8_DYNAMIC)


def ignore(parameter: torch.Tensor, tensor: torch.Tensor, *shard_id: object) -> None:
    """A host's loader that accepts everything."""


@given(st.lists(st.floats(min_value=2.0**-149, allow_infinity=False, width=32), min_size=1))
def test_scale_from_bits(values: list[float]) -> None:
    bits = [struct.unpack("<i", struct.pack("<f", value))[0] for value in values]
    stored = torch.tensor(bits, dtype=torch.int64)
    assert scale_from_bits(stored, "x").tolist() == values


def test_fp32_scale_is_left_alone() -> None:
    scale = torch.tensor([0.1, 1.0])
    assert scale_from_bits(scale, "x") is scale


def test_int64_scale_that_holds_no_float() -> None:
    with pytest.raises(CheckpointError, match=r"'a\.deq_scale' is int64"):
        scale_from_bits(torch.tensor([2**32]), "a.deq_scale")


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_must_be_positive_and_finite(bad: float) -> None:
    check_scales(torch.tensor([0.5]), ["a"], "deq_scale")
    with pytest.raises(CheckpointError, match="'deq_scale' of a, b"):
        check_scales(torch.tensor([0.5, bad]), ["a", "b"], "deq_scale")


def test_wrong_dtype_is_refused_before_the_host_rounds_it() -> None:
    load = LayerTensors(QKV).loader("weight", [torch.int8], ignore)
    with pytest.raises(CheckpointError, match=r"'l\.k_proj\.weight' has dtype torch\.bfloat16"):
        load(torch.zeros(4, 4, dtype=torch.int8), torch.zeros(4, 4, dtype=torch.bfloat16), "k")


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("narrow")])
def test_wrong_shape_is_reported_with_the_tensors_name(error: Exception) -> None:
    def refuse(*arguments: object) -> None:
        raise error

    load = LayerTensors(GATE_UP).loader("weight_scale", [torch.float32], refuse)
    with pytest.raises(CheckpointError, match=r"'l\.up_proj\.weight_scale' has shape \(8, 2\)"):
        load(torch.zeros(8, 1), torch.zeros(8, 2), 1)


@pytest.mark.parametrize(("plan", "ids"), [(QKV, ["q", "k", "v"]), (GATE_UP, [0, 1])])
def test_tensors_that_did_not_arrive_are_named(plan: LinearPlan, ids: list[object]) -> None:
    tensors = LayerTensors(plan)
    leaves = QUANTISED_TENSORS[plan.scheme]
    for leaf in leaves:
        load = tensors.loader(leaf, [torch.float32], ignore)
        for shard_id in ids if leaf != leaves[-1] else ids[:-1]:
            load(torch.zeros(1), torch.zeros(1), shard_id)
    with pytest.raises(CheckpointError, match=rf"lacks {plan.shards[-1]}\.{leaves[-1]}, which"):
        tensors.finish(torch.nn.Module())
    load(torch.zeros(1), torch.zeros(1), ids[-1])
    tensors.finish(torch.nn.Module())


def test_several_parts_in_one_tensor() -> None:
    plan = LinearPlan("l.gate_up_proj", ("l.gate_proj", "l.up_proj"), Scheme.W8A8_DYNAMIC)
    tensors = LayerTensors(plan)
    for leaf in QUANTISED_TENSORS[plan.scheme]:
        tensors.loader(leaf, [torch.float32], ignore)(torch.zeros(1), torch.zeros(1), (0, 1))
    tensors.finish(torch.nn.Module())
