# SPDX-License-Identifier: Apache-2.0
"""Finding and reading the rotation of a checkpoint, honest or hostile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.checkpoints import write_json, write_sidecar, write_target
from tests.support.rotations import hadamard_rotation, real_rotation
from vllm_eagle3_quarot.errors import CheckpointError, RotationError
from vllm_eagle3_quarot.rotation import Rotation

Q = hadamard_rotation(64)
OUTSIDE = {"quarot": {"rotation_map": {"global_rotation": "../optional/quarot.safetensors"}}}


@pytest.mark.parametrize(
    "optional",
    [
        {"quarot": {"rotation_map": {"global_rotation": "optional/quarot.safetensors"}}},
        {},
        None,
        {"quarot": {}},
        {"quarot": {"rotation_map": None}},
        {"quarot": {"rotation_map": {"global_rotation": ""}}},
        OUTSIDE,
        {"quarot": {"rotation_map": {"global_rotation": "/optional/quarot.safetensors"}}},
    ],
    ids=str,
)
def test_file_on_disk_serves_when_the_pointer_does_not(tmp_path: Path, optional: object) -> None:
    """The multi-device saver leaves the pointer empty or relative to another folder."""
    folder = write_target(tmp_path / "target", Q, optional=optional)
    assert torch.equal(Rotation.from_checkpoint(folder).dense(), Q)


def test_pointer_comes_before_the_usual_place(tmp_path: Path) -> None:
    pointer = {"quarot": {"rotation_map": {"global_rotation": "optional/other.safetensors"}}}
    folder = write_target(tmp_path / "target", Q, optional=pointer)
    other = hadamard_rotation(64, seed=5)
    write_sidecar(folder, other, "optional/other.safetensors")
    assert torch.equal(Rotation.from_checkpoint(folder).dense(), other)


def test_size_is_the_language_models_in_a_nested_configuration(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", real_rotation(192), nested=True)
    assert Rotation.from_checkpoint(str(folder)).size == 192


def test_pointer_outside_the_folder_is_never_followed(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", Q, sidecar=False, optional=OUTSIDE)
    write_sidecar(tmp_path, Q)
    with pytest.raises(RotationError, match="brings no rotation"):
        Rotation.from_checkpoint(folder)


@pytest.mark.parametrize("with_pointer", [True, False])
def test_link_out_of_the_folder_is_never_followed(tmp_path: Path, with_pointer: bool) -> None:
    optional = {} if not with_pointer else None
    folder = write_target(tmp_path / "target", Q, sidecar=False, optional=optional)
    elsewhere = write_sidecar(tmp_path / "elsewhere", Q)
    (folder / "optional").mkdir()
    os.symlink(elsewhere, folder / "optional" / "quarot.safetensors")
    with pytest.raises(RotationError, match="links out of the checkpoint folder"):
        Rotation.from_checkpoint(folder)


def test_hub_cache_layout_is_inside(tmp_path: Path) -> None:
    """The hub's cache links every file of a snapshot to the blobs folder of the same model."""
    model = tmp_path / "models--owner--name"
    folder = write_target(model / "snapshots" / "0123abcd", Q, sidecar=False)
    blob = write_sidecar(model, Q, "blobs/feed")
    (folder / "optional").mkdir()
    os.symlink(os.path.relpath(blob, folder / "optional"), folder / "optional/quarot.safetensors")
    assert torch.equal(Rotation.from_checkpoint(folder).dense(), Q)


def test_missing_file_that_the_description_names(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", Q, sidecar=False)
    with pytest.raises(RotationError, match="no such file") as caught:
        Rotation.from_checkpoint(folder)
    assert "optional/quarot.safetensors" in str(caught.value)
    assert "additional-config" in str(caught.value)


def test_truncated_file(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", Q)
    sidecar = folder / "optional/quarot.safetensors"
    whole = sidecar.read_bytes()
    for length in (0, 4, 8, 40, len(whole) // 2, len(whole) - 1):
        sidecar.write_bytes(whole[:length])
        with pytest.raises(RotationError, match="cannot be read") as caught:
            Rotation.from_checkpoint(folder)
        assert str(sidecar) in str(caught.value)


def test_header_that_claims_to_be_huge(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", Q)
    sidecar = folder / "optional/quarot.safetensors"
    sidecar.write_bytes((2**63 - 1).to_bytes(8, "little") + b"{}")
    with pytest.raises(RotationError, match="cannot be read"):
        Rotation.from_checkpoint(folder)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (Q.double(), "float64"),
        (Q.bfloat16(), "bfloat16"),
        (hadamard_rotation(32), r"\(32, 32\).*hidden size is 64"),
        (Q[0], r"\(64,\)"),
        (torch.zeros(()), r"\(\)"),
        (torch.zeros(0, 0), r"\(0, 0\)"),
        (Q * 2, "not orthogonal"),
        (Q.index_fill(0, torch.tensor([1]), float("nan")), "NaN"),
    ],
    ids=["fp64", "bf16", "other size", "1-d", "0-d", "empty", "scaled", "nan"],
)
def test_unusable_tensor_names_file_reason_and_remedy(
    tmp_path: Path, tensor: torch.Tensor, reason: str
) -> None:
    folder = write_target(tmp_path / "target", Q)
    sidecar = write_sidecar(folder, tensor)
    with pytest.raises(RotationError, match=reason) as caught:
        Rotation.from_checkpoint(folder)
    assert str(sidecar) in str(caught.value)
    assert "quantise again" in str(caught.value)


def test_other_tensor_names_are_listed(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "target", Q)
    save_file({"rot.weight": Q}, folder / "optional/quarot.safetensors")
    with pytest.raises(RotationError, match=r"no tensor 'global_rotation' \(it has: rot.weight\)"):
        Rotation.from_checkpoint(folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "list"),
        ("[" * 100_000, "not valid JSON"),
        ('{"optional": 3}', "'optional' is a int"),
        ('{"optional": {"quarot": []}}', "'optional.quarot' is a list"),
        ('{"optional": {"quarot": {"rotation_map": "x"}}}', "rotation_map' is a str"),
        (
            '{"optional": {"quarot": {"rotation_map": {"global_rotation": 1}}}}',
            "global_rotation' is a int",
        ),
        ('{"model_quant_type": []}', "model_quant_type"),
        ('{"metadata": 1}', "metadata"),
    ],
)
def test_broken_description_names_file_and_key(tmp_path: Path, text: str, reason: str) -> None:
    folder = write_target(tmp_path / "target", Q)
    (folder / "quant_model_description.json").write_text(text)
    with pytest.raises(CheckpointError, match=reason) as caught:
        Rotation.from_checkpoint(folder)
    assert "quant_model_description.json" in str(caught.value)


def test_pointer_with_a_zero_byte_is_outside(tmp_path: Path) -> None:
    pointer = {"quarot": {"rotation_map": {"global_rotation": "optional/\0x"}}}
    folder = write_target(tmp_path / "target", Q, optional=pointer)
    assert torch.equal(Rotation.from_checkpoint(folder).dense(), Q)


@pytest.mark.parametrize("size", [None, "64", 0, -1, True, 1.5])
def test_hidden_size_that_is_no_size(tmp_path: Path, size: object) -> None:
    folder = write_target(tmp_path / "target", Q)
    write_json(folder / "config.json", {"hidden_size": size})
    with pytest.raises(CheckpointError, match="hidden_size"):
        Rotation.from_checkpoint(folder)
