# SPDX-License-Identifier: Apache-2.0
"""Stored 8-bit weights as floats: what the tools meant by them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import reference_pair as pair
from tests.support.checkpoints import write_json
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import ProbeError
from vllm_eagle3_quarot.probe.weights import draft_weights, parameter_count, target_weights

MOE = Path(__file__).parents[2] / "fixtures" / "moe_target" / "w8a8"
QUARK = Path(__file__).parents[2] / "fixtures" / "rotated_exports" / "quark-r1"
NAME = "model.layers.0.self_attn.q_proj.weight"

#: Rounding to 255 steps of the largest weight of a channel leaves 7.5e-3 of random weights.
INT8 = 1.2e-2


def _written(folder: Path, **tensors: torch.Tensor) -> TargetFacts:
    """A target of one quantised linear layer; ``__`` stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {NAME.removesuffix("weight") + name: value for name, value in tensors.items()}
    save_file(stored, folder / "model.safetensors")
    write_json(folder / "config.json", {"hidden_size": 4})
    return TargetFacts.from_folder(folder)


def _error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs.float()).norm() / theirs.float().norm())


def test_static_and_dynamic_layers_of_msmodelslim() -> None:
    """Attention is static in the reference targets, MLP dynamic."""
    weights = target_weights(TargetFacts.from_folder(pair.PAIR / "target-w8a8"))
    original = load_file(pair.FLOAT_TARGET / "model.safetensors")
    assert weights.keys() == original.keys()
    for name, value in original.items():
        assert weights[name].dtype == torch.float32
        assert _error(weights[name], value) < INT8, name


def test_scale_of_a_model_that_is_not_bf16(tmp_path: Path) -> None:
    """Bits of an fp32 number in an int64."""
    scale = torch.tensor([0.5, 0.25])
    facts = _written(
        tmp_path,
        weight=torch.tensor([[1, -2, 3, 4], [5, 6, 7, -8]], dtype=torch.int8),
        deq_scale=scale.view(torch.int32).to(torch.int64),
        input_scale=torch.tensor([0.125]),
        input_offset=torch.tensor([3.0]),
        quant_bias=torch.zeros(2, dtype=torch.int32),
    )
    weights = target_weights(facts)
    assert weights.keys() == {NAME}
    expected = torch.tensor([[4.0, -8, 12, 16], [10, 12, 14, -16]])
    assert torch.equal(weights[NAME], expected)


def test_zero_point_and_tiles_of_fp8(tmp_path: Path) -> None:
    shifted = _written(
        tmp_path / "a",
        weight=torch.tensor([[1, 3], [5, 7]], dtype=torch.int8),
        weight_scale=torch.tensor([[2.0], [1.0]]),
        weight_zero_point=torch.tensor([[1], [-1]], dtype=torch.int8),
    )
    assert torch.equal(target_weights(shifted)[NAME], torch.tensor([[0.0, 4], [6, 8]]))
    tiled = _written(
        tmp_path / "b",
        weight=torch.ones(6, 4).to(torch.float8_e4m3fn),
        weight_scale_inv=torch.tensor([[1.0, 2], [3, 4]]),
    )
    rows = torch.tensor([[1.0, 1, 2, 2]] * 4 + [[3.0, 3, 4, 4]] * 2)
    assert torch.equal(target_weights(tiled)[NAME], rows)


def test_what_is_not_understood_is_refused(tmp_path: Path) -> None:
    packed = _written(tmp_path / "a", weight_packed=torch.zeros(2, 2, dtype=torch.int32))
    with pytest.raises(ProbeError, match=r"weight_packed' stands for packed weights"):
        target_weights(packed)
    bare = _written(tmp_path / "b", weight=torch.ones(2, 2, dtype=torch.int8))
    with pytest.raises(ProbeError, match="without a scale"):
        target_weights(bare)
    online = _written(tmp_path / "c", heads_rotation=torch.eye(2))
    with pytest.raises(ProbeError, match="rotation of heads while running"):
        target_weights(online)
    four = _written(tmp_path / "d", weight=torch.ones(2, 2, dtype=torch.int8))
    write_json(four.folder / "quant_model_description.json", {NAME: "W4A8_DYNAMIC"})
    with pytest.raises(ProbeError, match="stored as W4A8_DYNAMIC"):
        target_weights(TargetFacts.from_folder(four.folder))


def test_quark_and_experts() -> None:
    experts = target_weights(TargetFacts.from_folder(MOE))
    assert all(value.dtype == torch.float32 for value in experts.values())
    assert "model.layers.0.mlp.experts.0.down_proj.weight" in experts
    # Writers of the stream are rotated on their other side: singular values stay what they were.
    name = "model.layers.1.mlp.down_proj.weight"
    rotated = target_weights(TargetFacts.from_folder(QUARK))[name]
    original = load_file(QUARK.with_name("float-96") / "model.safetensors")[name]
    both = [torch.linalg.svdvals(value.float()) for value in (rotated, original)]
    assert _error(*both) < INT8


def test_quantised_draft(tmp_path: Path) -> None:
    folder = pair.variant(tmp_path / "q", pair.quantised, pair.quantised_config)
    weights = draft_weights(DraftFacts(folder))
    for name, value in load_file(pair.DRAFT / "model.safetensors").items():
        assert _error(weights[name].float(), value) < INT8, name


def test_size_is_counted_from_headers() -> None:
    tensors = load_file(pair.FLOAT_TARGET / "model.safetensors")
    count = parameter_count(TargetFacts.from_folder(pair.FLOAT_TARGET).tensors)
    assert count == sum(value.numel() for value in tensors.values())
