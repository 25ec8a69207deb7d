# SPDX-License-Identifier: Apache-2.0
"""A rotated target whose rotation cannot be used is not served with a draft."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.serving import ReferencePair, ServeOptions, Server, ServingError
from vllm_eagle3_quarot.serving.processes import session_members

SIDECAR = Path("optional") / "quarot.safetensors"


def tear(path: Path) -> None:
    """Cut the file in half, as an interrupted copy does."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize(
    ("name", "damage"), [("removed", Path.unlink), ("torn", tear)], ids=["removed", "torn"]
)
def test_a_damaged_sidecar_refuses_to_start_and_names_file_and_remedy(
    pair: ReferencePair, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    target = tmp_path / "target"
    shutil.copytree(pair.rotated, target)
    damage(target / SIDECAR)
    log = tmp_path / f"{name}.log"
    server = Server.of(ServeOptions(target=target, draft=pair.draft), log)
    with pytest.raises(ServingError) as caught, server:
        pytest.fail("the server started")
    assert "RotationError" in str(caught.value)
    explanation = log.read_text(encoding="utf-8", errors="replace")
    assert str(SIDECAR) in explanation
    assert "restore the file from the quantised checkpoint" in explanation
    assert session_members(server.process.pid) == []
