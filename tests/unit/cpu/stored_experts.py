# SPDX-License-Identifier: Apache-2.0
"""Experts as msModelSlim 26.1.0 stores them, their arithmetic in numpy, vLLM's layer of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.unit.cpu.loading import described, quantization
from tests.unit.cpu.stored_layer import Array, StoredLayer, dynamic_layer

LAYER = "model.layers.0.mlp.experts"

#: vLLM's parameter and name of each matrix, as its models map them.
PARAMETERS = {"gate_proj": ("w13", "w1"), "up_proj": ("w13", "w3"), "down_proj": ("w2", "w2")}


@dataclass(frozen=True)
class StoredExperts:
    """The experts of one layer, each matrix by the last part of its name."""

    experts: list[dict[str, StoredLayer]]

    def layers(self) -> dict[str, StoredLayer]:
        """All matrices by their full names."""
        return {
            f"{LAYER}.{number}.{part}": layer
            for number, expert in enumerate(self.experts)
            for part, layer in expert.items()
        }

    def expected(self, x: torch.Tensor, router_logits: torch.Tensor, top_k: int) -> Array:
        """float64 ``[T, H]``: softmax over all experts, of which the ``top_k`` best count.

        Their weights are scaled to a sum of one.
        """
        output = np.zeros(x.shape)
        for token, chosen, weight in _choices(router_logits, top_k):
            output[token] += weight * self._expert(chosen, x[token : token + 1])[0]
        return output

    def _expert(self, number: int, x: torch.Tensor) -> Array:
        matrices = self.experts[number]
        gate, up = matrices["gate_proj"].expected(x), matrices["up_proj"].expected(x)
        inner = gate / (1 + np.exp(-gate)) * up
        return matrices["down_proj"].expected(torch.from_numpy(inner.astype(np.float32)))


def _choices(router_logits: torch.Tensor, top_k: int) -> Iterator[tuple[int, int, float]]:
    for token, logits in enumerate(router_logits.to(torch.float64).numpy()):
        share = np.exp(logits - logits.max())
        best = np.argsort(-share)[:top_k]
        for chosen in best:
            yield token, int(chosen), float(share[chosen] / share[best].sum())


def stored_experts(count: int, hidden: int, inner: int) -> StoredExperts:
    """Random experts, quantised the way the tool does."""
    sizes = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    return StoredExperts(
        [
            {
                part: dynamic_layer(*size, seed=10 * number + index)
                for index, (part, size) in enumerate(sizes.items())
            }
            for number in range(count)
        ]
    )


def load_experts(
    stored: StoredExperts,
    hidden: int,
    inner: int,
    top_k: int,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Any:
    """vLLM's layer with these experts, ready to run.

    Loaded with names for all arguments, as vLLM does from 0.24 on; before, it names only some.
    """
    from vllm.model_executor.layers.fused_moe import FusedMoE

    stock = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        layer = FusedMoE(
            num_experts=len(stored.experts),
            top_k=top_k,
            hidden_size=hidden,
            intermediate_size=inner,
            quant_config=quantization(described(stored.layers())),
            prefix=LAYER,
            **options,
        )
        for number, expert in enumerate(stored.experts):
            for part, matrix in expert.items():
                name, shard = PARAMETERS[part]
                for leaf, tensor in matrix.tensors.items():
                    parameter = getattr(layer, f"{name}_{leaf}")
                    parameter.weight_loader(
                        param=parameter,
                        loaded_weight=tensor,
                        weight_name=f"{LAYER}.{name}_{leaf}",
                        shard_id=shard,
                        expert_id=number,
                        return_success=True,
                    )
        layer.quant_method.process_weights_after_loading(layer)
    finally:
        torch.set_default_dtype(stock)
    return layer


def run_experts(layer: Any, x: torch.Tensor, router_logits: torch.Tensor) -> torch.Tensor:
    """The layer's output, as the engine's forward pass gets it."""
    from vllm.config import get_current_vllm_config
    from vllm.forward_context import set_forward_context

    with set_forward_context(None, get_current_vllm_config()):
        output: torch.Tensor = layer(x.clone(), router_logits)
    return output
