# SPDX-License-Identifier: Apache-2.0
"""A from the projection, layer ids from the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.support.checkpoints import write_json
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.draft.aux_states import AuxStates, aux_states_of
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError

H = 24
IDS = "eagle_aux_hidden_state_layer_ids"


def _draft(
    folder: Path, width: int | None, config: dict[str, Any], name: str = "fc.weight"
) -> DraftFacts:
    write_json(folder / "config.json", config)
    tensors = {"norm.weight": torch.ones(H)}
    if width is not None:
        tensors[name] = torch.ones(8, width)
    save_file(tensors, folder / "model.safetensors")
    return DraftFacts(folder)


@pytest.mark.variants(6)
@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, None),
        ({IDS: None}, None),
        ({IDS: []}, None),
        ({"eagle_config": None}, None),
        ({"eagle_config": {IDS: None}}, None),
        ({IDS: [1, 4, 7]}, (1, 4, 7)),
        ({"eagle_config": {IDS: [1, 4, 7]}}, (1, 4, 7)),
        ({"transformer_layer_config": {"hidden_size": H}, IDS: [1, 4, 7]}, (1, 4, 7)),
    ],
    ids=str,
)
def test_three_states_and_the_places_of_layer_ids(
    tmp_path: Path, config: dict[str, Any], layers: tuple[int, ...] | None
) -> None:
    assert aux_states_of(_draft(tmp_path, 3 * H, config), H) == AuxStates(3, layers)


@pytest.mark.variants(6)
@pytest.mark.parametrize("ids", [{}, {IDS: None}, {"eagle_config": {}}], ids=str)
def test_default_is_named_when_the_draft_names_no_layers(
    tmp_path: Path, ids: dict[str, Any]
) -> None:
    draft = _draft(tmp_path, 3 * H, ids)
    assert "layers (2, 18, 33) (the host's default" in str(aux_states_of(draft, H, depth=36))
    assert "the host's default layers" in str(aux_states_of(draft, H))
    named = _draft(tmp_path / "named", 3 * H, {IDS: [1, 4, 7]})
    assert str(aux_states_of(named, H, depth=36)).endswith("of layers (1, 4, 7)")


@pytest.mark.variants(6)
@pytest.mark.parametrize("count", [1, 2, 4, 5])
@pytest.mark.parametrize("name", ["fc.weight", "model.fc.weight"])
def test_count_is_the_width_of_the_projection(tmp_path: Path, count: int, name: str) -> None:
    layers = tuple(range(count))
    draft = _draft(tmp_path, count * H, {IDS: list(layers)}, name)
    assert aux_states_of(draft, H) == AuxStates(count, layers)


def test_without_aux_states(tmp_path: Path) -> None:
    draft = _draft(tmp_path, None, {"eagle_config": {"use_aux_hidden_state": False}})
    assert aux_states_of(draft, H) == AuxStates(0, None)


def test_quantised_projection_goes_by_its_configuration(tmp_path: Path) -> None:
    config = {"quantization_config": {"quant_method": "fp8"}, IDS: [0, 1, 2, 3]}
    assert aux_states_of(_draft(tmp_path, 7, config), H) == AuxStates(4, (0, 1, 2, 3))


def test_width_that_is_no_multiple_names_both_numbers(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#12886: a projection one channel too wide."""
    with pytest.raises(UnsupportedPairError, match=f"{3 * H + 1} channels.*{H}"):
        aux_states_of(_draft(tmp_path, 3 * H + 1, {}), H)


def test_projection_under_another_name_lists_what_was_seen(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#13277: the states pass through a module that is not called fc."""
    draft = _draft(tmp_path, 5 * H, {}, "context_proj.weight")
    with pytest.raises(UnsupportedPairError, match=r"no 'fc\.weight'.*context_proj\.weight"):
        aux_states_of(draft, H)


def test_count_and_layer_ids_that_disagree(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPairError, match=r"takes 4 aux hidden states.*names no layers"):
        aux_states_of(_draft(tmp_path / "a", 4 * H, {}), H)
    with pytest.raises(UnsupportedPairError, match=r"takes 3 .*\(1, 2\)"):
        aux_states_of(_draft(tmp_path / "b", 3 * H, {IDS: [1, 2]}), H)


@pytest.mark.parametrize("ids", ["2,4", [1, "2", 3], [True, 2, 3], {"a": 1}])
def test_layer_ids_that_are_no_numbers(tmp_path: Path, ids: object) -> None:
    with pytest.raises(CheckpointError, match=IDS):
        aux_states_of(_draft(tmp_path, 3 * H, {IDS: ids}), H)
