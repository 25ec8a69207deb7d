# SPDX-License-Identifier: Apache-2.0
"""Quantised layers on two tensor-parallel ranks, each a process of its own.

Importable by name, because a spawned process imports what it runs.
"""

from __future__ import annotations

import os
from functools import partial

import torch

from tests.unit.cpu.stored_experts import stored_experts
from tests.unit.cpu.stored_layer import StoredLayer, dynamic_layer, static_layer

ATTENTION = "model.layers.0.self_attn"
MLP = "model.layers.0.mlp"


def inputs(k: int) -> torch.Tensor:
    return torch.randn(5, k, generator=torch.Generator().manual_seed(11))


def layers_of_case(case: str) -> dict[str, StoredLayer]:
    if case == "row_static":
        return {f"{ATTENTION}.o_proj": static_layer(96, 192, bias=True)}
    if case == "row_static_without_bias":
        return {f"{ATTENTION}.o_proj": static_layer(96, 192)}
    if case == "row_dynamic":
        return {f"{MLP}.down_proj": dynamic_layer(96, 192)}
    if case == "gate_up_dynamic":
        return {
            f"{MLP}.{part}_proj": dynamic_layer(64, 192, seed=i)
            for i, part in enumerate(["gate", "up"])
        }
    sizes = {"q_proj": 4 * 48, "k_proj": 48, "v_proj": 48}  # one KV head: both ranks have a copy
    return {
        f"{ATTENTION}.{name}": static_layer(n, 192, seed=i, bias=True)
        for i, (name, n) in enumerate(sizes.items())
    }


def router_logits(experts: int) -> torch.Tensor:
    return torch.randn(5, experts, generator=torch.Generator().manual_seed(12))


#: Experts of a layer, each 48 -> 40 -> 48, of which a token takes two.
EXPERTS = stored_experts(6, 48, 40)
TOP_K = 2

CASES = ["row_static", "row_static_without_bias", "row_dynamic", "gate_up_dynamic", "qkv_static"]


def shared_memory_name(parent: int) -> str:
    """First part of the names of the shared memory of the ranks that process ``parent`` starts."""
    return f"test-{parent}"


def run_rank(rank: int, store: str, results: str) -> None:
    """One rank: load every case, run it, save this rank's output."""
    from vllm.config import ParallelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.linear import (
        MergedColumnParallelLinear,
        QKVParallelLinear,
        RowParallelLinear,
    )

    from tests.unit.cpu.loading import load
    from tests.unit.cpu.stored_experts import load_experts, run_experts

    torch.set_num_threads(1)
    # Names the ranks' shared memory; the CPU worker sets it from the port of its group.
    os.environ["VLLM_DIST_IDENT"] = shared_memory_name(os.getppid())
    row = partial(RowParallelLinear, 192, 96, return_bias=False, reduce_results=False)
    builds = {
        "row_static": row,
        "row_static_without_bias": row,
        "row_dynamic": row,
        "gate_up_dynamic": partial(MergedColumnParallelLinear, 192, [64, 64], return_bias=False),
        "qkv_static": partial(QKVParallelLinear, 192, 48, 4, 1, return_bias=False),
    }
    outputs = {}
    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        init_distributed_environment(2, rank, f"file://{store}", local_rank=rank, backend="gloo")
        initialize_model_parallel(2)
        for case in CASES:
            stored = layers_of_case(case)
            fused = {
                "gate_up_dynamic": f"{MLP}.gate_up_proj",
                "qkv_static": f"{ATTENTION}.qkv_proj",
            }
            name = fused.get(case, next(iter(stored)))
            for layer in stored.values():
                layer.bias = None  # the model has none: what there is of it is in quant_bias
            layer = load(builds[case], name, stored)
            x = inputs(192)
            if case.startswith("row"):
                x = x[:, rank * 96 : (rank + 1) * 96].contiguous()
            outputs[case] = layer(x)
        layer = load_experts(EXPERTS, 48, 40, TOP_K)
        outputs["experts_split"] = run_experts(layer, inputs(48), router_logits(6))
    by_rank = ParallelConfig(enable_expert_parallel=True)
    with set_current_vllm_config(VllmConfig(parallel_config=by_rank)), torch.inference_mode():
        layer = load_experts(EXPERTS, 48, 40, TOP_K)
        outputs["experts_by_rank"] = run_experts(layer, inputs(48), router_logits(6))
    torch.save(outputs, f"{results}/{rank}.pt")
