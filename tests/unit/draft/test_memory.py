# SPDX-License-Identifier: Apache-2.0
"""Deciding what a draft needs takes the memory of Q and one working block, at any size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.checkpoints import embedding, write_json, write_target
from tests.support.memory import peak_allocation
from tests.support.rotations import dense_rotation, real_rotation
from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.draft.final_norm import find_final_norm
from vllm_eagle3_quarot.rotation import Rotation, row_blocks
from vllm_eagle3_quarot.settings import Settings

HIDDEN, VOCABULARY = 768, 4000

#: fp32 ``[H, H]``: 2.25 MiB. A table here has 5.9 MiB as stored and twice that in fp32.
Q_BYTES = 4 * HIDDEN**2

#: Elements handled at once in this file, a 32nd of what is usual.
ELEMENTS = 2**15

#: Some temporaries of one block, or of the 64 rows that are compared first, in fp32.
BLOCK_BYTES = 12 * 4 * max(ELEMENTS, 64 * HIDDEN)

ROTATIONS = {
    "12 x 64": lambda: real_rotation(HIDDEN),
    "blocks of 32": lambda: real_rotation(HIDDEN, 32),
    "dense": lambda: dense_rotation(HIDDEN),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "ELEMENTS_AT_ONCE", ELEMENTS)


def _write_draft(folder: Path, **tensors: torch.Tensor) -> Path:
    write_json(folder / "config.json", {"hidden_size": HIDDEN})
    stored = {"fc": torch.zeros(8, 3 * HIDDEN), **tensors}
    save_file(
        {f"{name}.weight": value.to(torch.bfloat16) for name, value in stored.items()},
        folder / "model.safetensors",
    )
    return folder


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ROTATIONS)
def test_decision_takes_q_and_one_block(tmp_path: Path, name: str) -> None:
    """All rows of both tables are compared here, which is the most that a decision reads."""
    target = write_target(tmp_path / "target", ROTATIONS[name](), vocabulary=VOCABULARY)
    table = embedding(VOCABULARY, HIDDEN)
    draft = _write_draft(tmp_path / "draft", embed_tokens=table, lm_head=torch.zeros(8, HIDDEN))
    chosen = []
    peak = peak_allocation(
        lambda: chosen.append(correction_of(target, str(draft), Settings())), tmp_path
    )
    assert chosen[0] is not None and chosen[0].embedding == "shared"
    assert peak <= Q_BYTES + BLOCK_BYTES


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", ["rot.weight", "tied tables"])
def test_finding_the_final_norm_takes_one_block(tmp_path: Path, source: str) -> None:
    q = real_rotation(HIDDEN)
    scale = torch.linspace(0.5, 1.5, HIDDEN)
    target = write_target(tmp_path / "target", q, vocabulary=VOCABULARY)
    if source == "rot.weight":
        save_file({source: (q.T * scale) @ q}, target / "extra.safetensors")
    else:
        table = embedding(VOCABULARY, HIDDEN)
        rotated = {"model.embed_tokens.weight": table @ q, "lm_head.weight": (table * scale) @ q}
        save_file(rotated, target / "model.safetensors")
    draft = _write_draft(tmp_path / "draft")
    rotation = Rotation.from_checkpoint(target)
    facts = TargetFacts.from_folder(target), DraftFacts(draft)
    found = []
    peak = peak_allocation(lambda: found.append(find_final_norm(*facts, rotation, None)), tmp_path)
    assert source in found[0].source
    assert torch.allclose(found[0].scale, scale, atol=1e-4)
    assert peak <= BLOCK_BYTES


#: Declared size of one tensor of a shard; on disk it is a hole that takes no space.
HOLE_BYTES = 4 * 2**30

#: What a process may grow by while it looks for small tensors beside that one.
GROWTH_BYTES = 64 * 2**20


def _write_sparse(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """A safetensors file of ``tensors`` behind a tensor of :data:`HOLE_BYTES`."""
    header: dict[str, object] = {
        "a.hole": {"dtype": "BF16", "shape": [HOLE_BYTES // 2], "data_offsets": [0, HOLE_BYTES]}
    }
    end = HOLE_BYTES
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [end, end + size],
        }
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.seek(HOLE_BYTES, 1)
        for tensor in tensors.values():
            file.write(tensor.numpy().tobytes())


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def _read_bytes() -> int:
    (line,) = [
        line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar")
    ]
    return int(line.split()[1])


def test_no_shard_is_read_whole(tmp_path: Path) -> None:
    """Targets have shards of many GB; a norm and some rows of a table are all that is wanted."""
    q = real_rotation(192)
    table, head = embedding(96, 192), embedding(96, 192, seed=4)
    target = write_target(tmp_path / "target", q)
    (target / "model.safetensors").unlink()
    _write_sparse(
        target / "model.safetensors",
        {
            "model.embed_tokens.weight": table @ q,
            "model.norm.weight": torch.ones(192),
            "lm_head.weight": head @ q,
        },
    )
    draft = tmp_path / "draft"
    write_json(draft / "config.json", {"hidden_size": 192})
    _write_sparse(
        draft / "model.safetensors",
        {
            "fc.weight": torch.randn(192, 576),
            "embed_tokens.weight": table,
            "lm_head.weight": head,
        },
    )
    resident, read = _resident_bytes(), _read_bytes()
    correction = correction_of(target, str(draft), Settings())
    assert correction is not None and correction.embedding == "shared"
    assert _resident_bytes() - resident < GROWTH_BYTES
    assert _read_bytes() - read < GROWTH_BYTES


def test_a_pickled_draft_is_mapped(tmp_path: Path) -> None:
    """``.bin`` files have no slices to read, so they are mapped and their tensors are views."""
    table = torch.randn(VOCABULARY, HIDDEN)
    torch.save({"embed_tokens.weight": table}, tmp_path / "pytorch_model.bin")
    write_json(tmp_path / "config.json", {})
    read = _read_bytes()
    rows = []
    facts = DraftFacts(tmp_path)
    peak = peak_allocation(
        lambda: rows.append(facts.tensors.read_rows(facts.name_of(EMBEDDING) or "", [5, 7])),
        tmp_path,
    )
    assert torch.equal(rows[0], table[[5, 7]])
    assert peak < 2**20
    assert _read_bytes() - read < 2**20
