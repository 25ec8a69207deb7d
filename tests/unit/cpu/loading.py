# SPDX-License-Identifier: Apache-2.0
"""Loading stored layers into vLLM's linear layers through the quantisation under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tests.unit.cpu.stored_layer import StoredLayer

PACKED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}

#: vLLM's name of each fused part.
SHARD_IDS: dict[str, Any] = {
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "gate_proj": 0,
    "up_proj": 1,
}


def quantization(types: Mapping[str, str]) -> Any:
    """The quantisation of a checkpoint with this description."""
    from vllm_eagle3_quarot.integrations.cpu.msmodelslim import MsModelSlimConfig

    config = MsModelSlimConfig()
    config.tensor_types = dict(types)
    config.packed_modules_mapping = PACKED
    return config


def described(layers: Mapping[str, StoredLayer]) -> dict[str, str]:
    """Description entries of layers by their full names."""
    types = {}
    for name, layer in layers.items():
        types.update({f"{name}.{leaf}": layer.scheme for leaf in layer.tensors})
        if layer.bias is not None:
            types[f"{name}.bias"] = "FLOAT"
    return types


def load(
    build: Callable[..., Any],
    prefix: str,
    layers: Mapping[str, StoredLayer],
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Build a vLLM layer, load the stored ones into it and let it get ready, as vLLM's loader does.

    Args:
        build: makes the layer, given ``quant_config``, ``prefix`` and ``bias``.
        prefix: the engine's name of the layer.
        layers: stored layers by their full names.
        dtype: the model's dtype.
    """
    stock = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        bias = any(layer.bias is not None for layer in layers.values())
        built = build(quant_config=quantization(described(layers)), prefix=prefix, bias=bias)
        for name, layer in layers.items():
            shard = SHARD_IDS.get(name.rpartition(".")[2])
            arguments = () if shard is None else (shard,)
            for leaf, tensor in layer.tensors.items():
                parameter = getattr(built, leaf)
                parameter.weight_loader(parameter, tensor, *arguments)
            if layer.bias is not None:
                built.bias.weight_loader(built.bias, layer.bias, *arguments)
        built.quant_method.process_weights_after_loading(built)
    finally:
        torch.set_default_dtype(stock)
    return built
