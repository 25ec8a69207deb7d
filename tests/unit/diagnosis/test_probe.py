# SPDX-License-Identifier: Apache-2.0
"""``--probe``: what is concluded from an agreement, and what cannot be run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.cli.app import app
from vllm_eagle3_quarot.diagnosis import probe_state
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.diagnosis.findings import Diagnosis
from vllm_eagle3_quarot.diagnosis.probe_state import ProbeRequest
from vllm_eagle3_quarot.probe import agreement, target_model
from vllm_eagle3_quarot.probe.agreement import Agreement

ROTATED = pair.ROTATED_TARGET
ONE_PROMPT = ProbeRequest(prompts=["Two geese stood past this grey granary."])


def _diagnosed(target: Path = ROTATED, draft: Path = pair.DRAFT) -> Diagnosis:
    return diagnose(str(target), str(draft), environment={}, probe=ONE_PROMPT)


def _message(diagnosis: Diagnosis, code: str) -> str:
    return next(finding.message for finding in diagnosis.findings if finding.code == code)


@pytest.mark.parametrize(
    ("shares", "code", "verdict", "mode_off"),
    [
        ((0.9, 0.0, 0.0), "probe-agrees", "ready-with-plugin", False),
        ((0.0, 0.9, 0.0), "probe-agrees-transposed", "rotation-stale", False),
        ((0.0, 0.0, 0.9), "probe-agrees-uncorrected", "already-aligned", True),
        ((0.1, 0.0, 0.1), "probe-agrees-nowhere", "unknown", False),
    ],
)
def test_verdict_follows_the_basis_in_which_the_draft_is_at_home(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    shares: tuple[float, float, float],
    code: str,
    verdict: str,
    mode_off: bool,
) -> None:
    """A draft without tables of its own, of which files alone say little."""
    target = write_target(tmp_path / "target", real_rotation(96))
    draft = DraftSpec(hidden=96, own_embedding=False).write(tmp_path / "draft")
    measured = Agreement(1, 50, dict(zip(("rotation", "transposed", "identity"), shares)))  # noqa: B905
    monkeypatch.setattr(probe_state, "measure_agreement", lambda *_, **__: measured)
    diagnosis = _diagnosed(target, draft)
    assert diagnosis.verdict == verdict
    assert f"{shares[0]:.3f} un-rotated with Q" in _message(diagnosis, code)
    assert ('"mode": "off"' in (diagnosis.serve_command or "")) is mode_off
    document = diagnosis.document()["probe"]
    assert document == {
        "prompts": 1,
        "positions": 50,
        "agreement": {"rotation": shares[0], "transposed": shares[1], "identity": shares[2]},
    }


def test_a_run_answers_what_the_looks_of_fc_only_suggest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """vllm-project/vllm-ascend#5974: folded elsewhere, or a draft that merely looks like it."""
    q = real_rotation(96)
    target = write_target(tmp_path / "target", q)
    draft = DraftSpec(hidden=96).write(tmp_path / "draft", embedding(96, 96))
    tensors = load_file(draft / "model.safetensors")
    sizes = torch.ones(96)
    sizes[:8] = 6
    tensors["fc.weight"] = ((tensors["fc.weight"].reshape(-1, 96) / sizes) @ q).reshape(96, -1)
    save_file(tensors, draft / "model.safetensors")
    assert diagnose(str(target), str(draft), environment={}).verdict == "unknown"
    for shares, verdict in (
        ({"rotation": 0.0, "identity": 0.9}, "already-aligned"),
        ({"rotation": 0.9, "identity": 0.0}, "ready-with-plugin"),
    ):
        measured = Agreement(1, 50, shares)
        monkeypatch.setattr(
            probe_state, "measure_agreement", lambda *_, measured=measured, **__: measured
        )
        assert _diagnosed(target, draft).verdict == verdict


def test_target_without_its_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Agreement(1, 50, {"identity": 0.02})
    monkeypatch.setattr(probe_state, "measure_agreement", lambda *_, **__: measured)
    diagnosis = _diagnosed(pair.PAIR / "target-w8a8")
    assert diagnosis.verdict == "unknown"
    assert diagnosis.document()["probe"] == {
        "prompts": 1,
        "positions": 50,
        "agreement": {"rotation": None, "transposed": None, "identity": 0.02},
    }


def test_too_large_a_target_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_model, "MOST_PARAMETERS", 1_000_000)
    diagnosis = _diagnosed()
    assert diagnosis.verdict == "ready-with-plugin"
    assert "a probe takes targets of up to" in _message(diagnosis, "probe-not-run")
    assert diagnosis.document()["probe"] is None
    monkeypatch.undo()
    monkeypatch.setattr(target_model, "_available_memory", lambda: 2**20)
    assert "GiB of memory are needed" in _message(_diagnosed(), "probe-not-run")


def test_what_cannot_be_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = tmp_path / "unknown"
    shutil.copytree(ROTATED, unknown)
    config = json.loads((unknown / "config.json").read_text())
    (unknown / "config.json").write_text(json.dumps({**config, "model_type": "no_such_model"}))
    assert "cannot load it" in _message(_diagnosed(unknown), "probe-not-run")
    latent = pair.variant(
        tmp_path / "latent",
        lambda tensors: {
            name.replace("self_attn.k_proj", "self_attn.kv_b_proj"): value
            for name, value in tensors.items()
        },
    )
    assert "no 'layers.0.self_attn.k_proj.weight'" in _message(
        _diagnosed(draft=latent), "probe-not-run"
    )
    no_draft = _diagnosed(draft=pair.FLOAT_TARGET)
    assert no_draft.verdict == "not-eagle3"
    assert "does not fit the target" in _message(no_draft, "probe-not-run")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "needs transformers" in _message(_diagnosed(), "probe-not-run")


@pytest.mark.parametrize(
    ("whose", "key", "value"),
    [
        ("target", "num_hidden_layers", 10**9),
        ("target", "intermediate_size", 10**9),
        ("target", "vocab_size", "many"),
        ("target", "eos_token_id", {"a": 1}),
        ("draft", "num_attention_heads", 10**9),
        ("draft", "num_attention_heads", 1e308),
        ("draft", "rms_norm_eps", "small"),
        ("draft", "rope_scaling", {"rope_type": "no such"}),
    ],
)
def test_wrong_values_are_no_traceback(tmp_path: Path, whose: str, key: str, value: object) -> None:
    folders = {"target": ROTATED, "draft": pair.DRAFT}
    for name, source in folders.items():
        shutil.copytree(source, tmp_path / name)
        folders[name] = tmp_path / name
    path = folders[whose] / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    diagnosis = _diagnosed(folders["target"], folders["draft"])
    assert "\n" not in _message(diagnosis, "probe-not-run")


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "CONTINUATION", 24)
    monkeypatch.setattr(agreement, "UNCOUNTED", 0)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(pair.prompts(1)[0].replace("\n", " ") + "\n\n")
    command = ["doctor", "--target", str(ROTATED), "--draft", str(pair.DRAFT), "--json", "--probe"]
    result = CliRunner().invoke(app, [*command, "--prompts", str(prompts)])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["verdict"] == "ready-with-plugin"
    assert document["probe"]["prompts"] == 1
    assert document["probe"]["agreement"]["rotation"] > 0.8
    assert document["probe"]["agreement"]["identity"] < 0.25
    prompts.write_bytes(b"\xff\xfe\xfa")
    assert CliRunner().invoke(app, [*command, "--prompts", str(prompts)]).exit_code == 2
    prompts.write_text("\n \n")
    assert CliRunner().invoke(app, [*command, "--prompts", str(prompts)]).exit_code == 2
