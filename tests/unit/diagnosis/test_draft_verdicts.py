# SPDX-License-Identifier: Apache-2.0
"""Verdicts that a draft leads to: is it one, is it whole, does it belong to the target?"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding, write_target
from tests.support.faulty_pairs import (
    Builder,
    Cases,
    Q,
    aligned,
    change,
    check_verdict,
    configure,
    draft_of,
    target_of,
)
from tests.support.rotations import dense_rotation


def _marked(folder: Path) -> tuple[Path, Path]:
    target = target_of(folder)
    return target, aligned(folder, target, draft_of(folder))


def _in_rotated_basis(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder, embedding(96, 96) @ Q)


def _table_unrotated_twice(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder, embedding(96, 96) @ Q.T)


def _other_width(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder, hidden=64, heads=2)


def _other_vocabulary(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder, vocabulary=64)


def _aligned_to_another(folder: Path) -> tuple[Path, Path]:
    first = write_target(folder / "first", dense_rotation(96))
    return target_of(folder), aligned(folder, first, draft_of(folder))


def _aligned_on_unrotated(folder: Path) -> tuple[Path, Path]:
    first = write_target(folder / "first", Q)
    return target_of(folder, None), aligned(folder, first, draft_of(folder))


def _absolute_ids(folder: Path) -> tuple[Path, Path]:
    """ByteDance/verl-SpeCo#67: target ids where offsets belong."""
    draft = draft_of(folder, draft_vocabulary=48)
    return target_of(folder), change(draft, d2t=torch.arange(48) * 2)


def _no_map(folder: Path) -> tuple[Path, Path]:
    """NVIDIA-NeMo/Automodel#2447: a reduced head without a map."""
    return target_of(folder), change(draft_of(folder, draft_vocabulary=48), d2t=None)


def _nan_in_fc(folder: Path) -> tuple[Path, Path]:
    draft = draft_of(folder)
    weight = load_file(draft / "model.safetensors")["fc.weight"]
    weight[0] = float("inf")
    return target_of(folder), change(draft, fc__weight=weight)


def _aux_states_contradict(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder, aux_states=4)


def _no_head_no_norm(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder, own_head=False)


def _target_as_draft(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#17075: the link to the draft opened a target."""
    return pair.PAIR / "target-w8a8-quarot", pair.FLOAT_TARGET


def _dflash(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#11978: another method's draft."""
    draft = draft_of(folder)
    tensors = load_file(draft / "model.safetensors")
    tensors["context_proj.weight"] = tensors.pop("fc.weight")
    save_file(tensors, draft / "model.safetensors")
    return target_of(folder), draft


def _other_method(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), configure(draft_of(folder), speculators_model_type="dflash")


def _aligned_without_a_mark(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#5974: a script in circulation folds ``fc`` and leaves no mark."""
    draft = draft_of(folder)
    weight = load_file(draft / "model.safetensors")["fc.weight"]
    sizes = torch.ones(96)
    sizes[:8] = 6
    folded = (weight.reshape(-1, 96) / sizes) @ Q
    return target_of(folder), change(draft, fc__weight=folded.reshape(weight.shape))


CASES: Cases = {
    "aligned by this tool": (_marked, "already-aligned", "aligned"),
    "trained on the rotated target": (
        _in_rotated_basis,
        "already-aligned",
        "draft-in-rotated-basis",
    ),
    "table un-rotated twice": (_table_unrotated_twice, "corrected-twice", "table-unrotated-twice"),
    "another width": (_other_width, "mismatched-pair", "hidden-size-mismatch"),
    "another vocabulary": (_other_vocabulary, "mismatched-pair", "vocabulary-mismatch"),
    "aligned to another": (_aligned_to_another, "mismatched-pair", "aligned-to-another"),
    "aligned, target unrotated": (_aligned_on_unrotated, "mismatched-pair", "aligned-to-another"),
    "absolute ids": (_absolute_ids, "broken-draft", "vocabulary-map-wrong"),
    "no vocabulary map": (_no_map, "broken-draft", "vocabulary-map-wrong"),
    "infinite fc": (_nan_in_fc, "broken-draft", "values-not-finite"),
    "four states, three layers": (
        _aux_states_contradict,
        "broken-draft",
        "aux-states-contradict",
    ),
    "no head, no norm": (_no_head_no_norm, "broken-draft", "plugin-refuses"),
    "target as draft": (_target_as_draft, "not-eagle3", "not-eagle3"),
    "no fc": (_dflash, "not-eagle3", "not-eagle3"),
    "another method": (_other_method, "not-eagle3", "not-eagle3"),
    "aligned without a mark": (_aligned_without_a_mark, "unknown", "probably-aligned"),
}


@pytest.mark.parametrize(("build", "verdict", "code"), CASES.values(), ids=CASES)
def test_verdict(tmp_path: Path, build: Builder, verdict: str, code: str) -> None:
    check_verdict(tmp_path, build, verdict, code)
