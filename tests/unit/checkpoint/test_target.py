# SPDX-License-Identifier: Apache-2.0
"""Facts about a target, read from few bytes of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import embedding, write_json, write_target
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.errors import CheckpointError

Q = hadamard_rotation(64)


@pytest.mark.parametrize("nested", [False, True])
def test_ones_in_the_final_norm_are_the_signature(tmp_path: Path, nested: bool) -> None:
    assert TargetFacts.from_folder(
        write_target(tmp_path / "rotated", Q, nested=nested)
    ).final_norm_is_ones
    assert not TargetFacts.from_folder(
        write_target(tmp_path / "plain", None, nested=nested)
    ).final_norm_is_ones


def test_one_channel_that_is_not_one_is_enough(tmp_path: Path) -> None:
    norm = torch.ones(64)
    norm[17] = 1.0078125  # the next bf16 number
    folder = write_target(tmp_path / "target", Q, norm=norm)
    assert not TargetFacts.from_folder(folder).final_norm_is_ones


def test_tables_of_a_healthy_and_of_a_broken_tied_export(tmp_path: Path) -> None:
    healthy = write_target(tmp_path / "healthy", Q)
    broken = write_target(tmp_path / "broken", Q, tied=True, broken_tie=True)
    absent = write_target(tmp_path / "absent", Q, tied=True)
    assert not TargetFacts.from_folder(healthy).head_equals_embedding
    assert TargetFacts.from_folder(broken).head_equals_embedding
    assert TargetFacts.from_folder(absent).head_equals_embedding


def test_index_file_and_headers_give_the_same_tensors(tmp_path: Path) -> None:
    save_file({"a": torch.arange(6.0).reshape(3, 2)}, tmp_path / "m-00001-of-00002.safetensors")
    save_file({"b": torch.ones(2)}, tmp_path / "m-00002-of-00002.safetensors")
    by_header = TensorIndex.from_folder(tmp_path)
    weight_map = {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"}
    write_json(tmp_path / "m.safetensors.index.json", {"weight_map": weight_map})
    by_index = TensorIndex.from_folder(tmp_path)
    assert by_header.files == by_index.files
    assert by_index.shape("a") == (3, 2)
    assert torch.equal(by_index.read("b"), torch.ones(2))
    assert torch.equal(by_index.read_rows("a", [2, 0]), torch.tensor([[4.0, 5.0], [0.0, 1.0]]))
    assert by_index.first_of(["x", "b", "a"]) == "b"
    assert by_index.first_of(["x"]) is None


@pytest.mark.parametrize("shard", ["../x.safetensors", "/x.safetensors", 7, None])
def test_index_that_leads_out_of_the_folder(tmp_path: Path, shard: object) -> None:
    write_json(tmp_path / "m.safetensors.index.json", {"weight_map": {"a": shard}})
    with pytest.raises(CheckpointError, match="not a file of this checkpoint"):
        TensorIndex.from_folder(tmp_path)


def test_index_that_names_a_missing_shard_or_tensor(tmp_path: Path) -> None:
    write_json(tmp_path / "m.safetensors.index.json", {"weight_map": {"a": "x.safetensors"}})
    with pytest.raises(CheckpointError, match=r"x\.safetensors cannot be read"):
        TensorIndex.from_folder(tmp_path).read("a")
    save_file({"b": torch.ones(1)}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="has no tensor 'a', although the index says so"):
        TensorIndex.from_folder(tmp_path).read("a")
    with pytest.raises(CheckpointError, match="has no tensor 'c'"):
        TensorIndex.from_folder(tmp_path).read("c")


@pytest.mark.parametrize("key", ["text_config", "llm_config"])
def test_language_part_of_a_composite_configuration(tmp_path: Path, key: str) -> None:
    """vllm-project/vllm-ascend#6327: the size of Q is the language model's."""
    vision = {"hidden_size": 1152, "out_hidden_size": 96}
    language = {"hidden_size": 96, "tie_word_embeddings": True}
    write_json(tmp_path / "config.json", {"vision_config": vision, key: language})
    facts = TargetFacts.from_folder(tmp_path)
    assert facts.hidden_size == 96
    assert facts.tie_word_embeddings


def test_vision_weights_before_the_token_table(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#8765: exact names, whatever comes first in the index."""
    folder = write_target(tmp_path / "target", Q, nested=True)
    tensors = load_file(folder / "model.safetensors")
    names = ["model.visual.pos_embed.weight", "model.visual.patch_embed.proj.weight"]
    tensors[names[0]] = torch.randn(96, 64)  # of the token table's own shape
    save_file(tensors, folder / "model.safetensors")
    ordered = [*names, *(name for name in tensors if name not in names)]
    write_json(
        folder / "model.safetensors.index.json",
        {"weight_map": dict.fromkeys(ordered, "model.safetensors")},
    )
    facts = TargetFacts.from_folder(folder)
    table = facts.tensors.first_of(TARGET_EMBEDDING)
    assert table == "model.language_model.embed_tokens.weight"
    assert facts.tensors.shape(table) == (96, 64)
    rows = facts.tensors.read_rows(table, [0, 5]).float() @ Q.T
    # Rows are stored in bf16: off by up to 2^-9 of a typical entry, which is of order 1.
    assert torch.allclose(rows, embedding(96, 64)[[0, 5]], atol=0.03)


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"text_config": 1, "hidden_size": 4})])
def test_broken_configuration_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        _ = TargetFacts.from_folder(tmp_path).hidden_size


def test_missing_configuration_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        _ = TargetFacts.from_folder(tmp_path).hidden_size
