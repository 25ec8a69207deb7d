# SPDX-License-Identifier: Apache-2.0
"""A bf16 draft is built with its dtype and device as torch's defaults; files are read as ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.checkpoints import embedding, write_json, write_target
from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.settings import Settings

ROTATIONS = {
    "hadamard": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "blocks of 32": real_rotation(96, 32),
    "dense": dense_rotation(80),
}

SOURCES = ["original", "rot.weight", "tied"]


@pytest.fixture
def _building_a_model() -> Iterator[None]:
    """bf16, and a device on which a tensor has no values: a use of it cannot go unnoticed."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def _write(folder: Path, q: torch.Tensor, source: str) -> tuple[Path, Path, Settings]:
    size = q.shape[0]
    scale = torch.linspace(0.5, 1.5, size)
    target = write_target(folder / "target", q)
    if source == "rot.weight":
        save_file({source: (q.T * scale) @ q}, target / "extra.safetensors")
    if source == "tied":
        table = embedding(96, size)
        stored = {"model.embed_tokens.weight": table @ q, "lm_head.weight": (table * scale) @ q}
        save_file({**stored, "model.norm.weight": torch.ones(size)}, target / "model.safetensors")
    draft = folder / "draft"
    kept = torch.arange(40) * 2
    write_json(
        draft / "config.json", {"hidden_size": size, "vocab_size": 96, "draft_vocab_size": 40}
    )
    tensors = {
        "fc.weight": torch.randn(size, 3 * size),
        "embed_tokens.weight": embedding(96, size),
        "d2t": kept - torch.arange(40),
    }
    save_file(tensors, draft / "model.safetensors")
    original = write_target(folder / "original", None, hidden=size)
    return target, draft, Settings(original_model=str(original) if source == "original" else None)


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_decision_does_not_depend_on_the_model_being_built(
    tmp_path: Path, name: str, source: str, request: pytest.FixtureRequest
) -> None:
    q = ROTATIONS[name]
    target, draft, settings = _write(tmp_path, q, source)
    expected = correction_of(target, str(draft), settings)
    assert expected is not None and expected.final_norm is not None
    plan = expected.rotation.plan
    request.getfixturevalue("_building_a_model")
    found = correction_of(target, str(draft), settings)
    assert found is not None and found.final_norm is not None
    assert found.rotation.kind == expected.rotation.kind
    for actual, wanted in zip(found.rotation.plan[:2], plan[:2], strict=True):
        assert actual.dtype == torch.float32 and actual.device.type == "cpu"
        assert torch.equal(actual, wanted)
    assert torch.equal(found.final_norm.scale, expected.final_norm.scale)
    assert found.rotation.fingerprint == expected.rotation.fingerprint
    assert torch.get_default_dtype() == torch.bfloat16
