# SPDX-License-Identifier: Apache-2.0
"""The whole examination: original models, given rotations, and what is not the rotation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import write_json, write_sidecar, write_target
from tests.support.faulty_pairs import (
    Q,
    codes,
    configure,
    diagnosed,
    draft_of,
    target_of,
)
from vllm_eagle3_quarot.errors import CheckpointError

LAYERS = "eagle_aux_hidden_state_layer_ids"


def test_original_model_tells_what_the_draft_cannot(tmp_path: Path) -> None:
    original = write_target(tmp_path / "original", None, hidden=96)
    draft = draft_of(tmp_path, own_embedding=False)
    target = target_of(tmp_path)
    assert "rotation-not-verified" in codes(diagnosed(target, draft))
    assert "rotation-verified" in codes(diagnosed(target, draft, original))
    write_sidecar(target, Q.T)
    assert diagnosed(target, draft).verdict == "ready-with-plugin"
    assert diagnosed(target, draft, original).verdict == "rotation-stale"


def test_tables_that_no_orthogonal_matrix_relates(tmp_path: Path) -> None:
    original = write_target(tmp_path / "original", None, hidden=96)
    target = target_of(tmp_path)
    tensors = load_file(target / "model.safetensors")
    name = "model.embed_tokens.weight"
    tensors[name] = (tensors[name].float() * torch.linspace(0.2, 2, 96)).to(torch.bfloat16)
    save_file(tensors, target / "model.safetensors")
    diagnosis = diagnosed(target, draft_of(tmp_path, own_embedding=False), original)
    assert diagnosis.verdict == "broken-target"
    assert "tables-not-related" in codes(diagnosis)


def test_draft_without_head_is_ready_with_the_original_model(tmp_path: Path) -> None:
    original = write_target(tmp_path / "original", None, hidden=96)
    diagnosis = diagnosed(target_of(tmp_path), draft_of(tmp_path, own_head=False), original)
    assert diagnosis.verdict == "ready-with-plugin"
    assert diagnosis.serve_command is not None
    assert f'"original_model": "{original}"' in diagnosis.serve_command


def test_given_rotation_takes_the_place_of_the_targets(tmp_path: Path) -> None:
    target, draft = target_of(tmp_path, sidecar=False, optional={}), draft_of(tmp_path)
    file = write_sidecar(tmp_path / "elsewhere", Q)
    diagnosis = diagnosed(target, draft, rotation_file=file)
    assert diagnosis.verdict == "ready-with-plugin"
    assert diagnosis.serve_command is not None
    assert f'"rotation": "{file}"' in diagnosis.serve_command
    write_sidecar(tmp_path / "elsewhere", Q * 2)
    assert diagnosed(target, draft, rotation_file=file).verdict == "rotation-stale"


def test_causes_that_are_not_the_rotation(tmp_path: Path) -> None:
    """vllm#50170, vllm-ascend#1305, #12956: named as warnings beside the verdict."""
    target, draft = target_of(tmp_path), draft_of(tmp_path)
    configure(target, num_hidden_layers=36)
    path = target / "quant_model_description.json"
    write_json(path, {**json.loads(path.read_text()), "kv_cache_type": "C8"})
    environment = {"VLLM_PLUGINS": "ascend", "VLLM_EAGLE3_QUAROT_DISABLE": "1"}
    diagnosis = diagnosed(target, draft, environment=environment)
    assert diagnosis.verdict == "ready-with-plugin"
    assert {
        "layer-ids-defaulted",
        "kv-cache-quantised",
        "plugin-filtered",
        "plugin-disabled",
    } <= set(codes(diagnosis))
    message = next(f.message for f in diagnosis.findings if f.code == "layer-ids-defaulted")
    assert "(2, 18, 33)" in message
    configure(draft, **{LAYERS: [2, 18, 40]})
    outside = diagnosed(target, draft, environment={"VLLM_PLUGINS": "ascend,eagle3_quarot"})
    assert outside.verdict == "mismatched-pair"
    assert "plugin-filtered" not in codes(outside)


def test_random_table_is_a_warning(tmp_path: Path) -> None:
    """torchspec-project/TorchSpec#38."""
    diagnosis = diagnosed(target_of(tmp_path), draft_of(tmp_path, torch.randn(96, 96)))
    assert diagnosis.verdict == "ready-with-plugin"
    assert "embedding-unrelated" in codes(diagnosis)


@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize("content", ["", "{", "[]", "\xff", '{"hidden_size": "96"}'])
def test_unreadable_configuration_raises_one_clear_error(
    tmp_path: Path, name: str, content: str
) -> None:
    target, draft = target_of(tmp_path), draft_of(tmp_path)
    path = {"target": target, "draft": draft}[name] / "config.json"
    path.write_bytes(content.encode("latin-1"))
    if content == '{"hidden_size": "96"}' and name == "draft":
        assert diagnosed(target, draft).verdict == "mismatched-pair"
        return
    with pytest.raises(CheckpointError, match=r"config\.json"):
        diagnosed(target, draft)
