# SPDX-License-Identifier: Apache-2.0
"""The scheme of a layer, from the description alone."""

from __future__ import annotations

import pytest

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.layer_plan import (
    QUANTISED_TENSORS,
    Scheme,
    check_tensor_types,
    is_quantised,
    plan_linear,
)

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
ATTENTION = "model.layers.3.self_attn"


def attention(q: str, k: str, v: str) -> dict[str, str]:
    kinds = {"q": q, "k": k, "v": v}
    return {f"{ATTENTION}.{part}_proj.weight": kind for part, kind in kinds.items()}


@pytest.mark.parametrize("kind", ["FLOAT", "W8A8", "W8A8_DYNAMIC"])
def test_fused_layer_takes_the_type_of_its_shards(kind: str) -> None:
    plan = plan_linear(f"{ATTENTION}.qkv_proj", FUSED, attention(kind, kind, kind))
    assert plan.scheme.value == kind
    assert plan.shards == tuple(f"{ATTENTION}.{part}_proj" for part in "qkv")


def test_layer_that_is_not_fused() -> None:
    plan = plan_linear(
        "model.layers.0.mlp.down_proj",
        FUSED,
        {
            "model.layers.0.mlp.down_proj.weight": "W8A8_DYNAMIC",
            "model.layers.10.mlp.down_proj.weight": "W8A8",
        },
    )
    assert plan.scheme is Scheme.W8A8_DYNAMIC
    assert plan.shards == ("model.layers.0.mlp.down_proj",)


def test_layer_without_a_parent() -> None:
    assert plan_linear("fc", FUSED, {"fc.weight": "FLOAT"}).shards == ("fc",)


def test_shards_of_different_types_are_named() -> None:
    with pytest.raises(CheckpointError) as error:
        plan_linear(f"{ATTENTION}.qkv_proj", FUSED, attention("W8A8", "W8A8", "FLOAT"))
    message = str(error.value)
    for part, kind in (("q", "W8A8"), ("k", "W8A8"), ("v", "FLOAT")):
        assert f"{ATTENTION}.{part}_proj: {kind}" in message


def test_missing_shard_is_named() -> None:
    types = attention("W8A8", "W8A8", "W8A8")
    del types[f"{ATTENTION}.k_proj.weight"]
    with pytest.raises(CheckpointError, match=rf"no entry '{ATTENTION}\.k_proj\.weight'"):
        plan_linear(f"{ATTENTION}.qkv_proj", FUSED, types)


@pytest.mark.parametrize("kind", ["W4A8_DYNAMIC", "W8A8_MIX", "W8A8_MXFP8", "W8A16", "C8", ""])
def test_unknown_type_names_tensor_type_and_what_is_supported(kind: str) -> None:
    tensor = "model.layers.0.mlp.up_proj.weight"
    with pytest.raises(CheckpointError) as error:
        check_tensor_types({tensor: kind}, {})
    for part in (tensor, f"'{kind}'", "FLOAT, W8A8, W8A8_DYNAMIC"):
        assert part in str(error.value)


def test_what_msmodelslim_writes_passes() -> None:
    types = {"model.embed_tokens.weight": "FLOAT", "model.norm.weight": "FLOAT"}
    for layer, scheme in (("self_attn.o_proj", Scheme.W8A8), ("mlp.up_proj", Scheme.W8A8_DYNAMIC)):
        for leaf in QUANTISED_TENSORS[scheme]:
            types[f"model.layers.0.{layer}.{leaf}"] = scheme.value
        types[f"model.layers.0.{layer}.bias"] = "FLOAT"
    check_tensor_types(types, {})


@pytest.mark.parametrize("kind", ["heads_rotation", "kronecker_rotation"])
def test_online_rotations_are_refused(kind: str) -> None:
    metadata = {"quarot": {"max_tp_size": 2, kind: {"layers": ["model.layers.1.mlp.down_proj"]}}}
    with pytest.raises(CheckpointError, match=f"{kind}.*'online: False'"):
        check_tensor_types({"model.layers.1.mlp.down_proj.weight": "W8A8"}, metadata)


def test_tensor_that_no_layer_of_its_type_has() -> None:
    with pytest.raises(CheckpointError, match=r"'a\.k_proj\.kv_cache_scale' is not a tensor that"):
        check_tensor_types({"a.k_proj.kv_cache_scale": "W8A8"}, {})


@pytest.mark.parametrize("norm", ["input_layernorm", "post_attention_layernorm", "norm"])
def test_bias_of_a_norm_is_refused(norm: str) -> None:
    """vLLM's Qwen loaders skip a bias that the model has no parameter for."""
    with pytest.raises(CheckpointError, match=rf"'model\.{norm}\.bias'"):
        check_tensor_types({f"model.{norm}.bias": "FLOAT"}, {})


def test_is_quantised() -> None:
    assert not is_quantised({})
    assert not is_quantised({"a.weight": "FLOAT"})
    assert is_quantised({"a.weight": "FLOAT", "b.weight": "W8A8"})
