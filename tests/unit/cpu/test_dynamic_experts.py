# SPDX-License-Identifier: Apache-2.0
"""W8A8_DYNAMIC experts in vLLM's layer, against msModelSlim's arithmetic in integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.unit.cpu.loading import described, quantization
from tests.unit.cpu.stored_experts import (
    LAYER,
    StoredExperts,
    load_experts,
    run_experts,
    stored_experts,
)
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu import int8_gemm

pytestmark = pytest.mark.usefixtures("vllm_layers")

EXPERTS, TOP_K, HIDDEN, INNER = 6, 2, 48, 40

ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

#: fp32 arithmetic before that, relative to the largest output: an expert's products and
#: exponential, the router's, a sum of two. No activation of these inputs lies so near to a border
#: between two steps that fp32 and the reference round it to different ones.
FP32_STEPS = 8 * 2.0**-24


@pytest.fixture(scope="module")
def stored() -> StoredExperts:
    return stored_experts(EXPERTS, HIDDEN, INNER)


def inputs(tokens: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations and router logits."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(tokens, HIDDEN, generator=generator).to(dtype)
    return x, torch.randn(tokens, EXPERTS, generator=generator).to(dtype)


@pytest.mark.parametrize("exact_kernel", [True, False])
@pytest.mark.parametrize("dtype", list(ROUNDOFF))
def test_is_the_formats_arithmetic(
    stored: StoredExperts, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, exact_kernel: bool
) -> None:
    if not exact_kernel:
        monkeypatch.setattr(int8_gemm, "onednn_is_exact", lambda dtype, *, per_token: False)
    layer = load_experts(stored, HIDDEN, INNER, TOP_K, dtype)
    x, logits = inputs(33, dtype)
    expected = stored.expected(x, logits, TOP_K)
    output = run_experts(layer, x, logits)
    assert output.dtype is dtype
    error = np.abs(output.to(torch.float64).numpy() - expected)
    # The router works in the model's dtype, so the experts' weights are rounded, and the result is.
    largest = np.abs(expected).max()
    assert (error <= ROUNDOFF[dtype] * (np.abs(expected) + largest) + FP32_STEPS * largest).all()


def test_token_does_not_depend_on_its_neighbours(stored: StoredExperts) -> None:
    layer = load_experts(stored, HIDDEN, INNER, TOP_K)
    x, logits = inputs(9)
    together = run_experts(layer, x, logits)
    alone = [run_experts(layer, x[i : i + 1], logits[i : i + 1]) for i in range(len(x))]
    assert torch.equal(together, torch.cat(alone))


def test_token_of_zeros(stored: StoredExperts) -> None:
    layer = load_experts(stored, HIDDEN, INNER, TOP_K)
    _, logits = inputs(3)
    zeros = torch.zeros(3, HIDDEN)
    assert torch.equal(run_experts(layer, zeros, logits), zeros)


def test_operator_is_declared_as_torch_compile_needs_it(stored: StoredExperts) -> None:
    layer = load_experts(stored, HIDDEN, INNER, TOP_K)
    x, logits = inputs(4)
    weights, numbers = logits.softmax(dim=-1).topk(TOP_K)
    operator = torch.ops.vllm.eagle3_quarot_dynamic_experts
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(operator, (x, weights, numbers, layer.layer_name), test_utils=tests)


def test_stored_weights_are_released(stored: StoredExperts) -> None:
    layer = load_experts(stored, HIDDEN, INNER, TOP_K)
    assert list(layer.state_dict()) == []


def test_dummy_weights(stored: StoredExperts) -> None:
    """`--load-format dummy` loads nothing and fills floating-point parameters at random."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe import FusedMoE

    vllm_config = VllmConfig()
    vllm_config.load_config.load_format = "dummy"
    config = quantization(described(stored.layers()))
    with set_current_vllm_config(vllm_config):
        layer = FusedMoE(EXPERTS, TOP_K, HIDDEN, INNER, quant_config=config, prefix=LAYER)
        for parameter in layer.parameters():
            if parameter.is_floating_point():
                parameter.data.uniform_(-1e-3, 1e-3)
        layer.quant_method.process_weights_after_loading(layer)
        assert bool(torch.isfinite(run_experts(layer, *inputs(2))).all())


def damaged(part: str, leaf: str, value: torch.Tensor | None) -> StoredExperts:
    """Experts of which number 3 has another tensor, or None."""
    experts = stored_experts(EXPERTS, HIDDEN, INNER)
    if value is None:
        del experts.experts[3][part].tensors[leaf]
    else:
        experts.experts[3][part].tensors[leaf] = value
    return experts


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
@pytest.mark.parametrize("leaf", ["weight_scale", "weight_offset"])
def test_missing_tensor_is_named(part: str, leaf: str) -> None:
    with pytest.raises(CheckpointError, match=rf"lacks {LAYER}\.3\.{part}\.{leaf}, which"):
        load_experts(damaged(part, leaf, None), HIDDEN, INNER, TOP_K)


INT8 = torch.int8


@pytest.mark.parametrize(
    ("part", "leaf", "value", "message"),
    [
        # vLLM's own loader would take the next three: it fills what the tensor reaches.
        (
            "gate_proj",
            "weight",
            torch.zeros(INNER - 1, HIDDEN, dtype=INT8),
            r"has shape \(39, 48\)",
        ),
        ("down_proj", "weight", torch.zeros(HIDDEN, INNER - 8, dtype=INT8), r"shape \(48, 32\)"),
        ("up_proj", "weight_scale", torch.ones(1, 1), r"has shape \(1, 1\).*\(40, 1\)"),
        ("up_proj", "weight_scale", torch.ones(INNER, 2), r"has shape \(40, 2\).*Per-group"),
        ("up_proj", "weight", torch.zeros(INNER, HIDDEN), r"has dtype torch\.float32"),
        ("down_proj", "weight_scale", torch.zeros(HIDDEN, 1), "has entries that are not positive"),
        ("gate_proj", "weight_offset", torch.ones(INNER, 1), "is not zero"),
    ],
)
def test_damaged_tensor_is_named(part: str, leaf: str, value: torch.Tensor, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        load_experts(damaged(part, leaf, value), HIDDEN, INNER, TOP_K)
    assert f"{LAYER}.3.{part}" in str(error.value)
    assert leaf in str(error.value)
