# SPDX-License-Identifier: Apache-2.0
"""A model given by its hub id: the sidecar is found in the snapshot that the engine uses."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.support.checkpoints import write_target
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.checkpoint.folder import model_folder
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.rotation import Rotation

Q = hadamard_rotation(64)

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one rotated model, files linked into ``blobs`` as the hub client keeps them."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    model = tmp_path / "cache" / "models--owner--name"
    written = write_target(tmp_path / "written", Q)
    for number, file in enumerate(sorted(p for p in written.rglob("*") if p.is_file())):
        blob = model / "blobs" / f"{number:040x}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(file.read_bytes())
        link = model / "snapshots" / REVISION / file.relative_to(written)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    return tmp_path / "cache"


@pytest.mark.parametrize("revision", [None, "main", REVISION])
def test_sidecar_of_a_hub_id(cache: Path, revision: str | None) -> None:
    folder = model_folder("owner/name", revision, cache=str(cache))
    assert folder.name == REVISION
    expected = Rotation.from_dense(Q)
    assert Rotation.from_checkpoint(folder).fingerprint == expected.fingerprint


@pytest.mark.parametrize(("model", "revision"), [("owner/other", None), ("owner/name", "gone")])
def test_hub_id_that_is_not_there(cache: Path, model: str, revision: str | None) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be had from the hub.*pass its folder"):
        model_folder(model, revision, cache=str(cache))
