# SPDX-License-Identifier: Apache-2.0
"""The scheme of a layer's experts, from the description alone."""

from __future__ import annotations

import pytest

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.expert_plan import (
    ExpertsPlan,
    has_quantised_experts,
    plan_experts,
)
from vllm_eagle3_quarot.integrations.cpu.layer_plan import Scheme

LAYER = "model.layers.1.mlp.experts"
PARTS = ("gate_proj", "up_proj", "down_proj")
LEAVES = ("weight", "weight_scale", "weight_offset")


def described(count: int, layer: str = LAYER) -> dict[str, str]:
    """What msModelSlim writes about the experts of one layer."""
    return {
        f"{layer}.{expert}.{part}.{leaf}": "W8A8_DYNAMIC"
        for expert in range(count)
        for part in PARTS
        for leaf in LEAVES
    }


def test_what_msmodelslim_writes() -> None:
    types = described(3) | described(3, "model.layers.11.mlp.experts")
    types["model.layers.1.mlp.gate.weight"] = "FLOAT"
    plan = plan_experts(LAYER, 3, types)
    assert plan == ExpertsPlan(LAYER, 3, Scheme.W8A8_DYNAMIC)
    assert sorted(plan.tensors(range(3))) == sorted(described(3))
    assert [plan.matrix(2, part) for part in ("w1", "w3", "w2")] == [
        f"{LAYER}.2.{part}" for part in PARTS
    ]


def test_floating_point_experts_are_vllms_own() -> None:
    assert has_quantised_experts(LAYER, described(1))
    assert not has_quantised_experts(LAYER, described(1, "model.layers.11.mlp.experts"))
    assert not has_quantised_experts(LAYER, {f"{LAYER}.0.{part}.weight": "FLOAT" for part in PARTS})


def test_missing_expert_is_named() -> None:
    with pytest.raises(CheckpointError, match=rf"no entry '{LAYER}\.3\.gate_proj\.weight'.*27 ent"):
        plan_experts(LAYER, 4, described(3))


@pytest.mark.parametrize(
    "unread", [f"{LAYER}.3.gate_proj.weight", f"{LAYER}.0.down_proj.bias", f"{LAYER}.w13_weight"]
)
def test_tensors_that_would_be_ignored_are_named(unread: str) -> None:
    with pytest.raises(CheckpointError, match=f"'{unread}' and 0 more tensors"):
        plan_experts(LAYER, 3, described(3) | {unread: "FLOAT"})


def test_different_types_are_counted() -> None:
    types = described(3) | {f"{LAYER}.1.down_proj.weight": "FLOAT"}
    with pytest.raises(CheckpointError) as error:
        plan_experts(LAYER, 3, types)
    for part in ("W8A8_DYNAMIC: 8", f"FLOAT: 1, e.g. {LAYER}.1.down_proj.weight"):
        assert part in str(error.value)


def test_static_experts_are_refused() -> None:
    types = {name: "W8A8" for name in described(2)}
    with pytest.raises(CheckpointError, match=r"type 'W8A8', which experts cannot have.*per_token"):
        plan_experts(LAYER, 2, types)
