# SPDX-License-Identifier: Apache-2.0
"""W8A8 layers in vLLM's linear layers, against msModelSlim's arithmetic in integers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cpu.loading import described, load, quantization
from tests.unit.cpu.stored_layer import StoredLayer, static_layer
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu import int8_gemm

pytestmark = pytest.mark.usefixtures("vllm_layers")

#: Unit roundoff of the output dtype: the answer is rounded to it once.
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

#: fp32 arithmetic before that: integer to fp32, times the scale.
FP32_STEPS = 2 * 2.0**-24

ATTENTION = "model.layers.0.self_attn"
MLP = "model.layers.0.mlp"


def activations(tokens: int, k: int, dtype: torch.dtype, seed: int = 7) -> torch.Tensor:
    """Values around and beyond the calibrated range, so that both ends of int8 are clamped to."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(tokens, k, generator=generator) * 2).to(dtype)


def assert_is_the_formats_arithmetic(
    output: torch.Tensor, layers: list[StoredLayer], x: torch.Tensor
) -> None:
    expected = np.concatenate([layer.expected(x) for layer in layers], axis=1)
    terms = np.concatenate([layer.sums(x) for layer in layers], axis=1)
    assert output.dtype is x.dtype
    error = np.abs(output.to(torch.float64).numpy() - expected)
    assert (error <= ROUNDOFF[x.dtype] * np.abs(expected) + FP32_STEPS * terms).all()


def column(k: int, n: int) -> Any:
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    return partial(ColumnParallelLinear, k, n, return_bias=False)


def row(k: int, n: int) -> Any:
    from vllm.model_executor.layers.linear import RowParallelLinear

    return partial(RowParallelLinear, k, n, return_bias=False)


def replicated(k: int, n: int) -> Any:
    from vllm.model_executor.layers.linear import ReplicatedLinear

    return partial(ReplicatedLinear, k, n, return_bias=False)


def qkv(hidden: int, head: int, heads: int, kv_heads: int) -> Any:
    from vllm.model_executor.layers.linear import QKVParallelLinear

    return partial(QKVParallelLinear, hidden, head, heads, kv_heads, return_bias=False)


def gate_up(k: int, n: int) -> Any:
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear

    return partial(MergedColumnParallelLinear, k, [n, n], return_bias=False)


def qkv_layers(seed: int = 0, **options: Any) -> dict[str, StoredLayer]:
    """4 heads and 2 KV heads of 48 on a hidden size of 192."""
    sizes = {"q_proj": 192, "k_proj": 96, "v_proj": 96}
    return {
        f"{ATTENTION}.{name}": static_layer(n, 192, seed=seed + i, **options)
        for i, (name, n) in enumerate(sizes.items())
    }


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("make", [column, row, replicated])
def test_single_layer(make: Any, bias: bool, dtype: torch.dtype) -> None:
    stored = static_layer(80, 192, bias=bias, int64_scale=dtype is not torch.bfloat16)
    layer = load(make(192, 80), f"{MLP}.down_proj", {f"{MLP}.down_proj": stored}, dtype)
    for tokens in (1, 5):
        x = activations(tokens, 192, dtype)
        assert_is_the_formats_arithmetic(layer(x), [stored], x)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_qkv(dtype: torch.dtype, bias: bool) -> None:
    layers = qkv_layers(bias=bias)
    layer = load(qkv(192, 48, 4, 2), f"{ATTENTION}.qkv_proj", layers, dtype)
    x = activations(6, 192, dtype)
    assert_is_the_formats_arithmetic(layer(x), list(layers.values()), x)


def test_fused_gate_up() -> None:
    layers = {
        f"{MLP}.{name}_proj": static_layer(320, 192, seed=seed)
        for seed, name in enumerate(["gate", "up"])
    }
    layer = load(gate_up(192, 320), f"{MLP}.gate_up_proj", layers)
    x = activations(3, 192, torch.float32)
    assert_is_the_formats_arithmetic(layer(x), list(layers.values()), x)


@pytest.mark.parametrize("odd_one", ["q_proj", "k_proj", "v_proj"])
def test_shards_that_quantise_their_input_differently(odd_one: str) -> None:
    layers = qkv_layers()
    name = f"{ATTENTION}.{odd_one}"
    n = len(layers[name].tensors["weight"])
    layers[name] = static_layer(n, 192, seed=9, input_range=(-4.0, 1.0))
    layer = load(qkv(192, 48, 4, 2), f"{ATTENTION}.qkv_proj", layers)
    x = activations(4, 192, torch.float32)
    assert_is_the_formats_arithmetic(layer(x), list(layers.values()), x)


def test_leading_dimensions_are_kept() -> None:
    stored = static_layer(80, 192)
    layer = load(column(192, 80), "fc", {"fc": stored})
    x = activations(6, 192, torch.float32)
    assert torch.equal(layer(x.reshape(2, 3, 192)), layer(x).reshape(2, 3, 80))


def test_without_an_exact_int8_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_gemm, "onednn_is_exact", lambda dtype, *, per_token: False)
    layers = qkv_layers(bias=True)
    layer = load(qkv(192, 48, 4, 2), f"{ATTENTION}.qkv_proj", layers)
    x = activations(4, 192, torch.float32)
    assert_is_the_formats_arithmetic(layer(x), list(layers.values()), x)


@given(
    st.floats(2.0**-10, 2.0**3, width=32),
    st.integers(-128, 127),
    st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=40),
)
def test_quantised_integers_are_the_formats(scale: float, offset: int, steps: list[float]) -> None:
    """Ties, ends of the range and values next to them: the integers must be the same ones."""
    from vllm_eagle3_quarot.integrations.cpu.static_linear import quantise

    values = np.array([step * scale for step in steps], dtype=np.float32)
    expected = np.clip(np.rint(values / np.float32(scale) + np.float32(offset)), -128, 127)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.from_numpy(values).to(dtype)
        if dtype is torch.bfloat16:
            values = x.to(torch.float32).numpy()
            expected = np.clip(np.rint(values / np.float32(scale) + np.float32(offset)), -128, 127)
        got = quantise(x, torch.tensor([scale]), torch.tensor([float(offset)]))
        assert got.tolist() == expected.tolist()


def test_bias_is_in_quant_bias_and_not_added_twice() -> None:
    stored = static_layer(80, 192, bias=True)
    layer = load(column(192, 80), "fc", {"fc": stored})
    assert layer.bias is not None and bool(layer.bias.any())
    output = layer(torch.zeros(1, 192))
    # A zero is quantised exactly (to input_offset); what is left is the bias in steps of deq_scale.
    assert stored.bias is not None
    assert ((output[0] - stored.bias).abs() <= stored.tensors["deq_scale"]).all()


def test_weights_in_two_forms_are_released() -> None:
    layer = load(column(192, 80), "fc", {"fc": static_layer(80, 192)})
    assert list(layer.state_dict()) == []


def test_missing_tensor_is_named() -> None:
    stored = static_layer(80, 192)
    del stored.tensors["quant_bias"]
    with pytest.raises(CheckpointError, match=r"lacks fc\.quant_bias"):
        load(column(192, 80), "fc", {"fc": stored})


@pytest.mark.parametrize(
    ("leaf", "value", "message"),
    [
        ("weight", torch.zeros(80, 192), r"'fc\.weight' has dtype torch\.float32"),
        ("weight", torch.zeros(80, 190, dtype=torch.int8), r"'fc\.weight' has shape \(80, 190\)"),
        ("deq_scale", torch.zeros(80), "'deq_scale' of fc has entries that are not positive"),
        ("deq_scale", torch.full((80,), 2**40), r"'fc\.deq_scale' is int64"),
        ("deq_scale", torch.ones(79), r"'fc\.deq_scale' has shape \(79,\)"),
        ("input_scale", torch.tensor([-1.0]), "'input_scale' of fc"),
        ("input_offset", torch.tensor([0.5]), r"'input_offset' of fc is \[0\.5\]"),
        ("input_offset", torch.tensor([200.0]), r"'input_offset' of fc is \[200\.0\]"),
    ],
)
def test_damaged_tensor_is_named(leaf: str, value: torch.Tensor, message: str) -> None:
    stored = static_layer(80, 192)
    stored.tensors[leaf] = value
    with pytest.raises(CheckpointError, match=message):
        load(column(192, 80), "fc", {"fc": stored})


def test_dummy_weights(vllm_layers: None) -> None:
    """`--load-format dummy` loads nothing and fills floating-point parameters at random."""
    from vllm.config import VllmConfig, set_current_vllm_config

    vllm_config = VllmConfig()
    vllm_config.load_config.load_format = "dummy"
    with set_current_vllm_config(vllm_config):
        config = quantization(described({"fc": static_layer(80, 192)}))
        layer = column(192, 80)(quant_config=config, prefix="fc", bias=False)
    for parameter in layer.parameters():
        if parameter.is_floating_point():
            parameter.data.uniform_(-1e-3, 1e-3)
    layer.quant_method.process_weights_after_loading(layer)
    assert bool(torch.isfinite(layer(torch.ones(2, 192))).all())


def test_bias_that_the_model_adds_later() -> None:
    from vllm.model_executor.layers.linear import ColumnParallelLinear

    config = quantization(described({"fc": static_layer(80, 192, bias=True)}))
    with pytest.raises(CheckpointError, match="adds the bias of 'fc' later"):
        ColumnParallelLinear(192, 80, skip_bias_add=True, quant_config=config, prefix="fc")
