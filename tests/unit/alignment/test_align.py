# SPDX-License-Identifier: Apache-2.0
"""An aligned draft computes from rotated states what the original did from original ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import embedding, write_target
from tests.support.draft_input import combined, combined_mask, read_draft
from tests.support.drafts import DraftSpec
from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot.alignment.align import UNDO_FILE, align, undo
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation

LAYERS = "eagle_aux_hidden_state_layer_ids"

#: fp32 files, fp64 arithmetic: two roundings of every weight to 24 bits.
FP32_TOLERANCE = 1e-5

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one norm before fc": {"norm_before_fc": True},
    "a norm per state": {"fc_norm": True, "extra": {"num_aux_hidden_states": 3}},
    "mask state": {"mask_hidden": True},
    "mask state behind a norm": {"mask_hidden": True, "norm_before_fc": True},
    "one state": {"aux_states": 1, "extra": {LAYERS: [4]}},
    "two states, norms": {"aux_states": 2, "fc_norm": True, "extra": {LAYERS: [1, 4]}},
    "five states": {"aux_states": 5, "extra": {LAYERS: [0, 1, 2, 3, 4]}},
    "narrower draft": {"hidden": 48, "target_hidden": 96},
    "wider draft": {"hidden": 128, "target_hidden": 96},
}

ROTATIONS = {
    "hadamard, 12 x 8": real_rotation(96),
    "blocks of 32": real_rotation(96, 32),
    "dense": dense_rotation(96),
}


def _write(
    folder: Path, q: torch.Tensor, **changes: Any
) -> tuple[DraftFacts, TargetFacts, Rotation]:
    spec = DraftSpec(**{"hidden": q.shape[0], **changes})
    target = write_target(folder / "target", q)
    original = embedding(96, q.shape[0])
    table = original if spec.own_embedding and spec.hidden == q.shape[0] else None
    draft = spec.write(folder / "draft", table)
    return DraftFacts(draft), TargetFacts.from_folder(target), Rotation.from_checkpoint(target)


def _align(folder: Path, q: torch.Tensor, **changes: Any) -> tuple[Path, Path]:
    draft, target, rotation = _write(folder, q, **changes)
    align(plan_alignment(draft, target, rotation), folder / "aligned")
    return draft.folder, folder / "aligned"


def _states(count: int, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Aux states ``[5, A·H]`` before and after rotating each, fp64."""
    generator = torch.Generator().manual_seed(5)
    states = torch.randn(5, count, q.shape[0], generator=generator, dtype=torch.float64)
    return states.flatten(1), (states @ q.double()).flatten(1)


@pytest.mark.parametrize("q", ROTATIONS.values(), ids=ROTATIONS)
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_rotated_states_give_what_original_states_gave(
    tmp_path: Path, changes: dict[str, Any], q: torch.Tensor
) -> None:
    original, aligned = _align(tmp_path, q, **changes)
    states, rotated = _states(changes.get("aux_states", 3), q)
    torch.testing.assert_close(
        combined(aligned, rotated), combined(original, states), rtol=0, atol=FP32_TOLERANCE
    )
    assert not torch.allclose(combined(original, rotated), combined(original, states), atol=0.1)
    if changes.get("mask_hidden"):
        torch.testing.assert_close(
            combined_mask(aligned), combined_mask(original), rtol=0, atol=FP32_TOLERANCE
        )


def test_nothing_else_changes(tmp_path: Path) -> None:
    q = hadamard_rotation(64)
    draft, target, rotation = _write(tmp_path, q, mask_hidden=True, norm_before_fc=True)
    (draft.folder / "tokenizer.json").write_text('{"a": 1}')
    (draft.folder / "sub").mkdir()
    (draft.folder / "sub/notes.txt").write_bytes(b"\x00\xff")
    align(plan_alignment(draft, target, rotation), tmp_path / "aligned")
    before, after = read_draft(draft.folder), read_draft(tmp_path / "aligned")
    assert list(after[1]) == list(before[1])
    changed = {"fc.weight", "input_norm.weight", "mask_hidden"}
    for name, value in before[1].items():
        assert after[1][name].dtype == value.dtype
        assert torch.equal(after[1][name], value) is (name not in changed), name
    assert torch.equal(after[1]["input_norm.weight"], torch.ones(192))
    assert after[0].pop("eagle3_quarot")["aligned"]["rotation"] == rotation.fingerprint
    assert after[0] == before[0]
    for name in ("tokenizer.json", "sub/notes.txt"):
        assert (tmp_path / "aligned" / name).read_bytes() == (draft.folder / name).read_bytes()


def test_shards_and_index_are_kept(tmp_path: Path) -> None:
    q = hadamard_rotation(64)
    draft, target, rotation = _write(tmp_path, q, own_embedding=False)
    tensors = load_file(draft.folder / "model.safetensors")
    (draft.folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weights = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({n: tensors[n] for n in part}, draft.folder / file, metadata={"format": "pt"})
        weights |= dict.fromkeys(part, file)
    total = sum(value.nbytes for value in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weights}
    (draft.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    output = tmp_path / "aligned"
    align(plan_alignment(DraftFacts(draft.folder), target, rotation), output)
    written = json.loads((output / "model.safetensors.index.json").read_text())
    assert written["weight_map"] == {**weights, "embed_tokens.weight": weights["fc.weight"]}
    assert written["metadata"]["total_size"] == total + 96 * 64 * 4
    for name, file in written["weight_map"].items():
        with safe_open(output / file, "pt") as stored:
            assert name in stored.keys()  # noqa: SIM118 - not a mapping
            assert stored.metadata()["format"] == "pt"
    untouched = next(f for f in set(weights.values()) if f != weights["fc.weight"])
    assert (output / untouched).read_bytes() == (draft.folder / untouched).read_bytes()


def test_embedding_and_head_come_out_of_the_target(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#7038: a draft that shares the target's gets them un-rotated."""
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q, own_embedding=False, own_head=False)
    original = TargetFacts.from_folder(write_target(tmp_path / "original", None, hidden=96))
    with pytest.raises(UnsupportedPairError, match="final norm"):
        plan_alignment(draft, target, rotation)
    align(plan_alignment(draft, target, rotation, original), tmp_path / "aligned")
    tensors = read_draft(tmp_path / "aligned")[1]
    for name, seed in (("embed_tokens.weight", 3), ("lm_head.weight", 4)):
        assert torch.equal(tensors[name], embedding(96, 96, seed).to(torch.bfloat16))


def test_embedding_without_the_original_and_head_with_its_norm(tmp_path: Path) -> None:
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q, own_embedding=False, own_head=False)
    tensors = load_file(draft.folder / "model.safetensors")
    tensors["verifier_norm.weight"] = torch.linspace(0.5, 1.5, 96)
    save_file(tensors, draft.folder / "model.safetensors")
    align(plan_alignment(DraftFacts(draft.folder), target, rotation), tmp_path / "aligned")
    tensors = read_draft(tmp_path / "aligned")[1]
    for name, seed in (("embed_tokens.weight", 3), ("lm_head.weight", 4)):
        wanted = embedding(96, 96, seed)
        assert tensors[name].dtype == torch.float32
        # The rotated target is stored in bf16, one rounding of 2^-9 per entry.
        error = (tensors[name] - wanted).norm() / wanted.norm()
        assert error < 4e-3


def test_untrained_table_is_replaced(tmp_path: Path) -> None:
    """torchspec-project/TorchSpec#38: a random table that the trainer exported by mistake."""
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q)
    tensors = load_file(draft.folder / "model.safetensors")
    tensors["embed_tokens.weight"] = torch.randn(96, 96)
    save_file(tensors, draft.folder / "model.safetensors")
    align(plan_alignment(DraftFacts(draft.folder), target, rotation), tmp_path / "aligned")
    table = read_draft(tmp_path / "aligned")[1]["embed_tokens.weight"]
    assert (table - embedding(96, 96)).norm() < 4e-3 * table.norm()


def test_second_alignment_is_refused(tmp_path: Path) -> None:
    """vllm-project/vllm-ascend#6914: correcting twice is as wrong as not at all."""
    q = real_rotation(96)
    _, aligned = _align(tmp_path, q)
    target = TargetFacts.from_folder(tmp_path / "target")
    rotation = Rotation.from_checkpoint(tmp_path / "target")
    with pytest.raises(UnsupportedPairError, match="aligned already, to this very rotation"):
        plan_alignment(DraftFacts(aligned), target, rotation)
    config = json.loads((aligned / "config.json").read_text())
    del config["eagle3_quarot"]
    (aligned / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedPairError, match="aligned already"):
        plan_alignment(DraftFacts(aligned), target, rotation)
    other = Rotation.from_dense(dense_rotation(96))
    with pytest.raises(UnsupportedPairError, match="another rotation"):
        plan_alignment(DraftFacts(aligned), target, other)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_undo_gives_the_original_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    q = real_rotation(96)
    original, aligned = _align(tmp_path, q, **changes)
    rotation = Rotation.from_checkpoint(tmp_path / "target")
    undo(DraftFacts(aligned), rotation, tmp_path / "back")
    before, after = read_draft(original), read_draft(tmp_path / "back")
    assert after[0] == before[0]
    assert not (tmp_path / "back" / UNDO_FILE).exists()
    assert list(after[1]) == list(before[1])
    for name, value in before[1].items():
        if name == "fc.weight":
            torch.testing.assert_close(after[1][name], value, rtol=0, atol=FP32_TOLERANCE)
        else:
            assert torch.equal(after[1][name], value)
    align(
        plan_alignment(
            DraftFacts(tmp_path / "back"), TargetFacts.from_folder(tmp_path / "target"), rotation
        ),
        tmp_path / "again",
    )


def test_undo_removes_what_was_added(tmp_path: Path) -> None:
    q = real_rotation(96)
    original, aligned = _align(tmp_path, q, own_embedding=False)
    assert "embed_tokens.weight" in read_draft(aligned)[1]
    undo(DraftFacts(aligned), Rotation.from_checkpoint(tmp_path / "target"), tmp_path / "back")
    assert list(read_draft(tmp_path / "back")[1]) == list(read_draft(original)[1])


def test_undo_refuses_another_rotation_and_an_original_draft(tmp_path: Path) -> None:
    q = real_rotation(96)
    original, aligned = _align(tmp_path, q)
    with pytest.raises(UnsupportedPairError, match="the one given is"):
        undo(DraftFacts(aligned), Rotation.from_dense(dense_rotation(96)), tmp_path / "back")
    with pytest.raises(UnsupportedPairError, match="no mark"):
        undo(DraftFacts(original), Rotation.from_dense(q), tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_dtype_of_what_changes_can_be_chosen(tmp_path: Path) -> None:
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q)
    align(plan_alignment(draft, target, rotation), tmp_path / "out", dtype=torch.bfloat16)
    tensors = read_draft(tmp_path / "out")[1]
    assert tensors["fc.weight"].dtype == torch.bfloat16
    assert tensors["norm.weight"].dtype == torch.float32


def test_pickled_draft_becomes_safetensors(tmp_path: Path) -> None:
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q, draft_vocabulary=48)
    tensors = load_file(draft.folder / "model.safetensors")
    torch.save(tensors, draft.folder / "pytorch_model.bin")
    (draft.folder / "model.safetensors").unlink()
    align(plan_alignment(DraftFacts(draft.folder), target, rotation), tmp_path / "aligned")
    assert not (tmp_path / "aligned/pytorch_model.bin").exists()
    after = read_draft(tmp_path / "aligned")[1]
    assert {n: v for n, v in after.items() if n != "fc.weight"}.keys() < tensors.keys()
    assert torch.equal(after["d2t"], tensors["d2t"])
    states, rotated = _states(3, q)
    torch.testing.assert_close(
        combined(tmp_path / "aligned", rotated),
        states @ tensors["fc.weight"].double().T,
        rtol=0,
        atol=FP32_TOLERANCE,
    )


def test_quantised_projection_needs_a_word(tmp_path: Path) -> None:
    """vllm-project/vllm#28435: a draft whose ``fc`` is int8 with a scale per channel."""
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q)
    tensors = load_file(draft.folder / "model.safetensors")
    weight = tensors["fc.weight"]
    scale = weight.abs().amax(1, keepdim=True) / 127
    tensors["fc.weight"] = (weight / scale).round().to(torch.int8)
    tensors["fc.weight_scale"] = scale
    save_file(tensors, draft.folder / "model.safetensors")
    path = draft.folder / "config.json"
    quantization = {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
    config = {**json.loads(path.read_text()), "quantization_config": quantization}
    path.write_text(json.dumps(config))
    with pytest.raises(UnsupportedPairError, match="--dequantise"):
        plan_alignment(DraftFacts(draft.folder), target, rotation)
    plan = plan_alignment(DraftFacts(draft.folder), target, rotation, dequantise=True)
    align(plan, tmp_path / "aligned")
    config, after = read_draft(tmp_path / "aligned")
    assert config["quantization_config"]["ignore"] == ["lm_head", "fc", "model.fc"]
    assert "fc.weight_scale" not in after
    states, rotated = _states(3, q)
    expected = states @ (tensors["fc.weight"].double() * scale.double()).T
    torch.testing.assert_close(
        combined(tmp_path / "aligned", rotated), expected, rtol=0, atol=FP32_TOLERANCE
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": {"eagle_config": {"use_aux_hidden_state": False}}}, "post-norm state"),
        ({"norm_before_fc": True, "fc_norm": True}, "both set"),
        ({"fc_norm": True, "extra": {"fc_norm": False}}, "does not set 'fc_norm'"),
        ({"extra": {"norm_before_fc": True}}, "no tensor 'input_norm.weight'"),
        ({"hidden": 64}, "not a pair"),
        ({"own_head": False, "draft_vocabulary": 48}, "does not fit it"),
    ],
)
def test_what_has_no_exact_fold_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedPairError, match=message):
        _align(tmp_path, real_rotation(96), **changes)
    assert not (tmp_path / "aligned").exists()


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    q = real_rotation(96)
    draft, target, rotation = _write(tmp_path, q)
    tensors = load_file(draft.folder / "model.safetensors")
    tensors["fc.weight"][3, 7] = float("nan")
    save_file(tensors, draft.folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"fc\.weight.*NaN or infinite"):
        align(plan_alignment(DraftFacts(draft.folder), target, rotation), tmp_path / "aligned")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "target"]


def test_wrong_original_is_refused(tmp_path: Path) -> None:
    draft, target, rotation = _write(tmp_path, real_rotation(96), own_embedding=False)
    with pytest.raises(UnsupportedPairError, match="not the original"):
        plan_alignment(draft, target, rotation, target)


@pytest.mark.parametrize("output", ["draft", "draft/inside", "."])
def test_the_draft_is_not_written_over(tmp_path: Path, output: str) -> None:
    draft, target, rotation = _write(tmp_path, real_rotation(96))
    with pytest.raises(UnsupportedPairError, match="not a folder apart"):
        align(plan_alignment(draft, target, rotation), tmp_path / output, overwrite=True)


def test_link_out_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    draft, target, rotation = _write(tmp_path, real_rotation(96))
    (draft.folder / "notes.txt").symlink_to("/etc/hostname")
    with pytest.raises(CheckpointError, match="links out of"):
        align(plan_alignment(draft, target, rotation), tmp_path / "aligned")
    assert not (tmp_path / "aligned").exists()
