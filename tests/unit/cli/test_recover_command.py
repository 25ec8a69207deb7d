# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot recover``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from tests.support import reference_pair as pair
from vllm_eagle3_quarot.cli.app import app
from vllm_eagle3_quarot.rotation import Rotation

SOURCE = pair.PAIR / "target-w8a8-quarot"


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["recover", *map(str, arguments)])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The reference target as an older version of the tool wrote it: no sidecar, no word of it."""
    folder = tmp_path / "target"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("optional"))
    path = folder / "quant_model_description.json"
    document = json.loads(path.read_text())
    del document["optional"]
    path.write_text(json.dumps(document))
    return folder


def test_sidecar_is_written_equal_to_the_tools(target: Path) -> None:
    arguments = ("--target-model-path", target, "--original-model-path", pair.FLOAT_TARGET)
    result = _run(*arguments, "--write-sidecar", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["rotation"]["kind"] == "hadamard"
    assert document["how"].startswith("msModelSlim seed 1234")
    assert document["fit"]["residual"] < 3e-3
    truth = load_file(SOURCE / "optional/quarot.safetensors")["global_rotation"]
    written = load_file(target / "optional/quarot.safetensors")["global_rotation"]
    assert torch.equal(written, truth)
    assert (
        Rotation.from_checkpoint(target).fingerprint == Rotation.from_checkpoint(SOURCE).fingerprint
    )
    again = _run(*arguments, "--write-sidecar")
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr
    assert _run(*arguments, "--write-sidecar", "--overwrite").exit_code == 0


def test_draft_as_witness_and_a_file_of_ones_choice(target: Path, tmp_path: Path) -> None:
    file = tmp_path / "sub/q.safetensors"
    result = _run("--target", target, "--draft", pair.DRAFT, "--output", file)
    assert result.exit_code == 0
    for word in ("residual", "min cosine", "orthogonality", "hadamard", str(file)):
        assert word in result.stdout
    assert not (target / "optional").exists()
    assert Rotation.from_file(file, hidden_size=192).kind == "hadamard"


def test_nothing_is_written_when_nothing_fits(target: Path, tmp_path: Path) -> None:
    file = tmp_path / "q.safetensors"
    result = _run(
        "--target", pair.FLOAT_TARGET, "--original-model", pair.FLOAT_TARGET, "--output", file
    )
    assert result.exit_code == 1
    assert "nothing to recover" in result.stderr
    assert not file.exists()


def test_exactly_one_witness(target: Path) -> None:
    assert _run("--target", target).exit_code == 2
    both = _run("--target", target, "--draft", pair.DRAFT, "--original-model", pair.FLOAT_TARGET)
    assert both.exit_code == 2
