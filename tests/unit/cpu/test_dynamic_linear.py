# SPDX-License-Identifier: Apache-2.0
"""W8A8_DYNAMIC layers in vLLM's linear layers, against msModelSlim's arithmetic in integers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from tests.unit.cpu.loading import load
from tests.unit.cpu.stored_layer import StoredLayer, dynamic_layer
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu import dynamic_linear

pytestmark = pytest.mark.usefixtures("vllm_layers")

ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

#: fp32 arithmetic before that: integer to fp32, two scales, bias.
FP32_STEPS = 4 * 2.0**-24

#: vLLM's kernel multiplies by 1/x_scale; that lands on the neighbouring integer for about 3 of
#: 10,000 activations, each of which moves an output by one step of its weight.
MOVED_STEPS = 2

MLP = "model.layers.0.mlp"


def check(output: torch.Tensor, layers: list[StoredLayer], x: torch.Tensor, moved: int) -> None:
    expected = np.concatenate([layer.expected(x) for layer in layers], axis=1)
    terms = np.concatenate([layer.sums(x) for layer in layers], axis=1)
    x_scale = x.to(torch.float64).abs().amax(dim=1, keepdim=True).numpy() / 127
    step = x_scale * 127 * np.concatenate([layer.scales() for layer in layers])
    rounding = ROUNDOFF[x.dtype] * np.abs(expected) + FP32_STEPS * terms
    assert output.dtype is x.dtype
    error = np.abs(output.to(torch.float64).numpy() - expected)
    assert (error <= 2 * rounding + moved * step).all()
    assert np.median(error) <= 2 * np.median(rounding) + 1e-12


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize("bias", [False, True])
def test_row_parallel(bias: bool, dtype: torch.dtype) -> None:
    from vllm.model_executor.layers.linear import RowParallelLinear

    name = f"{MLP}.down_proj"
    stored = dynamic_layer(96, 320, bias=bias)
    layer = load(
        partial(RowParallelLinear, 320, 96, return_bias=False), name, {name: stored}, dtype
    )
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(7, 320, generator=generator).to(dtype)
    check(layer(x), [stored], x, MOVED_STEPS)


@pytest.mark.parametrize("exact_kernel", [True, False])
def test_fused_gate_up(monkeypatch: pytest.MonkeyPatch, exact_kernel: bool) -> None:
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear

    if not exact_kernel:
        monkeypatch.setattr(dynamic_linear, "onednn_is_exact", lambda dtype, *, per_token: False)
    layers = {
        f"{MLP}.{part}_proj": dynamic_layer(320, 192, seed=i, bias=True)
        for i, part in enumerate(["gate", "up"])
    }
    build = partial(MergedColumnParallelLinear, 192, [320, 320], return_bias=False)
    layer = load(build, f"{MLP}.gate_up_proj", layers)
    x = torch.randn(5, 192, generator=torch.Generator().manual_seed(2))
    check(layer(x), list(layers.values()), x, MOVED_STEPS if exact_kernel else 0)


def test_token_of_zeros_without_an_exact_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.layers.linear import ReplicatedLinear

    monkeypatch.setattr(dynamic_linear, "onednn_is_exact", lambda dtype, *, per_token: False)
    build = partial(ReplicatedLinear, 64, 16, return_bias=False)
    layer = load(build, "fc", {"fc": dynamic_layer(16, 64)})
    assert torch.equal(layer(torch.zeros(2, 64)), torch.zeros(2, 16))


@pytest.mark.parametrize(
    ("leaf", "value", "message"),
    [
        ("weight_offset", torch.ones(16, 1), "'weight_offset' of fc is not zero"),
        ("weight_scale", torch.zeros(16, 1), "'weight_scale' of fc has entries that are not"),
        ("weight_scale", torch.ones(16, 2), r"'fc\.weight_scale' has shape \(16, 2\).*Per-group"),
    ],
)
def test_damaged_tensor_is_named(leaf: str, value: torch.Tensor, message: str) -> None:
    from vllm.model_executor.layers.linear import ReplicatedLinear

    stored = dynamic_layer(16, 64)
    stored.tensors[leaf] = value
    with pytest.raises(CheckpointError, match=message):
        load(partial(ReplicatedLinear, 64, 16), "fc", {"fc": stored})
