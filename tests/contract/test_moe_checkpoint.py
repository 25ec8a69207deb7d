# SPDX-License-Identifier: Apache-2.0
"""What the real msModelSlim wrote for a mixture of experts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from tests.support import moe_target, reference_pair
from tests.unit.cpu.reference_model import reference_model
from tools.moe_target.float_model import SETTINGS, write_float_model
from vllm_eagle3_quarot.integrations.cpu.expert_plan import plan_experts
from vllm_eagle3_quarot.integrations.cpu.layer_plan import Scheme, plan_linear

#: Relative. 8-bit noise is 2 to 8 % here, more from layer to layer; a missing or transposed
#: rotation gives sqrt(2).
STATE_TOLERANCE = 0.15


@pytest.mark.parametrize(
    ("name", "router"),
    [(moe_target.ROTATED, Scheme.W8A8_DYNAMIC), (moe_target.UNROTATED, Scheme.FLOAT)],
)
def test_names_and_types_are_those_that_the_engine_looks_for(name: str, router: Scheme) -> None:
    description = moe_target.FIXTURES / name / "quant_model_description.json"
    types = {key: kind for key, kind in json.loads(description.read_text()).items() if "." in key}
    for layer in range(SETTINGS.layers):
        mlp = f"model.layers.{layer}.mlp"
        plan = plan_experts(f"{mlp}.experts", SETTINGS.experts, types)
        assert plan.scheme is Scheme.W8A8_DYNAMIC
        assert plan_linear(f"{mlp}.gate", {}, types).scheme is router


@torch.inference_mode()
def test_states_are_those_of_the_float_model_rotated(tmp_path: Path) -> None:
    """What a draft has to be given back: ``h Q``, up to 8-bit noise.

    Median over tokens: noise can send a token near a border to another expert.
    """
    original = reference_model(write_float_model(tmp_path / "float"), torch.float32)
    quantised = reference_model(moe_target.FIXTURES / moe_target.ROTATED, torch.float32)
    q = moe_target.rotation().float()
    tokenizer = AutoTokenizer.from_pretrained(reference_pair.FLOAT_TARGET)
    tokens = torch.tensor([tokenizer(" ".join(reference_pair.prompts(4)))["input_ids"]])
    before = original(tokens, output_hidden_states=True).hidden_states
    after = quantised(tokens, output_hidden_states=True).hidden_states
    # The last state is after the final norm, whose scale is in the rotated head.
    last = before[-1] / original.model.norm.weight
    for state, rotated in zip((*before[:-1], last), after, strict=True):
        error = (rotated - state @ q).norm(dim=-1) / state.norm(dim=-1)
        assert error.median() <= STATE_TOLERANCE
