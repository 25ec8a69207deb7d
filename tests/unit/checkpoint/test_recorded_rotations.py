# SPDX-License-Identifier: Apache-2.0
"""What configurations of llm-compressor and AMD Quark say about the residual stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import recorded
from tests.support.checkpoints import write_json
from vllm_eagle3_quarot.checkpoint.recorded_rotation import RecordedRotations, ResidualRotation
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import CheckpointError


def read(folder: Path, quantization: object, **config: object) -> RecordedRotations | None:
    write_json(folder / "config.json", {"quantization_config": quantization, **config})
    return TargetFacts.from_folder(folder).recorded_rotations


def residual(folder: Path, quantization: object) -> ResidualRotation:
    found = read(folder, quantization)
    assert found is not None
    assert found.residual is not None
    return found.residual


@pytest.mark.parametrize("kind", ["hadamard", "random-hadamard"])
@pytest.mark.parametrize("block", [None, 32])
def test_fused_r1_rotates_the_stream(tmp_path: Path, kind: str, block: int | None) -> None:
    """vllm-project/llm-compressor#1615: of the rotation only this entry remains."""
    groups = {"R1": recorded.r1(type=kind, head_dim=block), "R2": recorded.r2()}
    found = residual(tmp_path, recorded.compressed_tensors(**groups))
    assert (found.construction, found.block, found.obstacle) == (kind, block, None)
    assert found.key == "quantization_config.transform_config.config_groups.R1"
    assert "compressed-tensors 0.19.0" in found.tool


@pytest.mark.parametrize(
    "targets",
    [
        "re:.*embed_tokens$",
        ["model.language_model.embed_tokens"],
        ["Linear", "Embedding"],
    ],
    ids=str,
)
def test_the_token_embedding_is_found_however_it_is_named(tmp_path: Path, targets: Any) -> None:
    group = recorded.group(recorded.place(targets, "weight_output"))
    assert residual(tmp_path, recorded.compressed_tensors(any=group)).construction == "hadamard"


@pytest.mark.parametrize(
    "groups",
    [
        {"R2": recorded.r2()},
        {"R2": recorded.r2(), "R4": recorded.r4()},
        recorded.quip(),
        {
            "R1": recorded.group(
                recorded.place(
                    ["re:.*embed_tokens$"], "weight_output", ignore=["model.embed_tokens", "re:.*"]
                )
            )
        },
        {"patch": recorded.group(recorded.place(["visual.patch_embed"], "weight_output"))},
        {"broken": recorded.group(recorded.place(["re:*("], "weight_output"))},
    ],
    ids=["R2", "R2 and R4", "QuIP", "ignored", "another embedding", "no expression"],
)
def test_rotations_inside_layers_leave_the_stream_alone(
    tmp_path: Path, groups: dict[str, Any]
) -> None:
    """vllm-project/llm-compressor#1778: R2, R4 and QuIP are undone where they were applied."""
    found = read(tmp_path, recorded.compressed_tensors(**groups))
    assert found is not None
    assert found.residual is None


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (recorded.r1(type="random-matrix"), "not orthogonal"),
        (recorded.r1(type="wavelet"), "'wavelet'"),
        (recorded.r1(type=None), "type None"),
        (recorded.r1(requires_grad=True), "trained"),
        (recorded.r1(randomize=True), "permuted"),
        (recorded.group(recorded.place(["Embedding"], "output")), "location 'output'"),
        (
            recorded.group(recorded.place(["Embedding"], "weight_output", inverse=True)),
            "inverse",
        ),
        (
            recorded.group(
                recorded.place(["Embedding"], "weight_output"),
                recorded.place(["model.embed_tokens"], "weight_output"),
            ),
            "more than one entry",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_record_does_not_determine(
    tmp_path: Path, group: dict[str, Any], reason: str
) -> None:
    found = residual(tmp_path, recorded.compressed_tensors(R1=group))
    assert found.construction is None
    assert found.obstacle is not None
    assert reason in found.obstacle
    assert found.is_orthogonal == (group["type"] != "random-matrix")


def test_two_transforms_of_the_stream_are_not_guessed_at(tmp_path: Path) -> None:
    found = residual(
        tmp_path, recorded.compressed_tensors(R1=recorded.r1(), again=recorded.r1(head_dim=32))
    )
    assert found.construction is None
    assert "R1" in found.key
    assert "again" in found.key


@pytest.mark.parametrize(
    ("changes", "block"), [({}, None), ({"rotation_size": 64, "r4": True}, 64)], ids=str
)
def test_quark_offline_r1(tmp_path: Path, changes: dict[str, Any], block: int | None) -> None:
    found = residual(tmp_path, recorded.quark(**changes))
    assert (found.construction, found.block) == ("hadamard", block)
    assert found.tool == "AMD Quark 0.13"


@pytest.mark.parametrize(
    "changes", [{"r1": False, "r2": True}, {"online_r1_rotation": True}], ids=str
)
def test_quark_without_fused_r1(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = read(tmp_path, recorded.quark(**changes))
    assert found is not None
    assert found.residual is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"random_r1": True}, "seed"),
        ({"trainable": True}, "trained"),
        ({"train_smooth": True, "smooth_positions": ["r1"]}, "smoothing"),
        ({"name": "quarot", "optimized_rotation_path": "R.bin"}, "from a file"),
    ],
    ids=str,
)
def test_quark_rotations_that_are_learned_or_random(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    found = residual(tmp_path, recorded.quark(**changes))
    assert found.construction is None
    assert found.obstacle is not None
    assert reason in found.obstacle


def test_quark_release_that_does_not_say_which_rotations(tmp_path: Path) -> None:
    old = {"name": "rotation", "random": False, "model_decoder_layers": "model.layers"}
    found = residual(tmp_path, {"quant_method": "quark", "algo_config": old})
    assert found.construction is None


@pytest.mark.parametrize(
    "quantization",
    [
        None,
        {},
        {"quant_method": "fp8"},
        {"quant_method": ["quark"]},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        recorded.compressed_tensors(),
        {"quant_method": "quark", "algo_config": None},
        {"quant_method": "quark", "algo_config": [{"name": "awq"}]},
    ],
    ids=str,
)
def test_configurations_without_rotations(tmp_path: Path, quantization: object) -> None:
    assert read(tmp_path, quantization) is None


def test_record_inside_the_language_part(tmp_path: Path) -> None:
    nested = {"quantization_config": recorded.compressed_tensors(R1=recorded.r1())}
    write_json(tmp_path / "config.json", {"model_type": "qwen3_vl", "text_config": nested})
    assert TargetFacts.from_folder(tmp_path).recorded_rotations is not None


@pytest.mark.parametrize(
    ("quantization", "key"),
    [
        (7, "quantization_config"),
        ({"quant_method": "compressed-tensors", "transform_config": 7}, "transform_config"),
        (recorded.compressed_tensors(R1=7), "config_groups.R1"),  # type: ignore[arg-type]
        (recorded.compressed_tensors(R1={"apply": 7}), "R1.apply"),
        (recorded.compressed_tensors(R1={"apply": [7]}), r"apply\[0\]"),
        (recorded.compressed_tensors(R1=recorded.r1(head_dim="64")), "head_dim"),
        (recorded.compressed_tensors(R1=recorded.r1(head_dim=0)), "head_dim"),
        ({"quant_method": "quark", "algo_config": 7}, "algo_config"),
        ({"quant_method": "quark", "algo_config": [7]}, r"algo_config\[0\]"),
        (recorded.quark(rotation_size=-4), "rotation_size"),
    ],
)
def test_broken_records_name_file_and_key(tmp_path: Path, quantization: object, key: str) -> None:
    with pytest.raises(CheckpointError, match=rf"config\.json.*{key}"):
        read(tmp_path, quantization)
