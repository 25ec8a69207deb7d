# SPDX-License-Identifier: Apache-2.0
"""Targets that the released tools rotated: what doctor, recover and the plugin make of each.

Made by ``tools/rotated_exports`` with msModelSlim 8.2.1, llm-compressor 0.14.0.1 and AMD Quark
0.13; what msModelSlim 26.1.0 makes is the reference pair.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.drafts import DraftSpec
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.recovery.recover import recover
from vllm_eagle3_quarot.recovery.tables import pairs_of_original
from vllm_eagle3_quarot.settings import Settings

EXPORTS = Path(__file__).parents[1] / "fixtures" / "rotated_exports"


@dataclass(frozen=True)
class Export:
    """One target: the model it was made from, and the right answers.

    Attributes:
        recovered: how its rotation is found; None when there is none.
        refusal: part of what the plugin and ``recover`` say when they refuse.
        centred: the tool took the mean of every embedding row away.
    """

    original: str
    verdict: str
    code: str
    recovered: str | None
    refusal: str | None = None
    centred: bool = False


CASES = {
    "msmodelslim-8.2.1": Export(
        "float-96-2048",
        "rotation-missing",
        "rotation-not-exported",
        "msModelSlim seed 42, block 96",
        "brings no rotation file",
    ),
    "llm-compressor-spinquant": Export(
        "float-64",
        "ready-with-plugin",
        "rotation-verified",
        "record of llm-compressor",
        centred=True,
    ),
    "llm-compressor-spinquant-random": Export(
        "float-96",
        "ready-with-plugin",
        "rotation-verified",
        "record of llm-compressor",
        centred=True,
    ),
    "llm-compressor-spinquant-matrix": Export(
        "float-64",
        "broken-target",
        "transform-not-orthogonal",
        None,
        "not orthogonal",
    ),
    "llm-compressor-quip": Export("float-64", "ready", "target-not-rotated", None),
    "quark-r1": Export(
        "float-96", "rotation-missing", "rotation-not-exported", "sign vote", "table of its own"
    ),
    "quark-r1-random": Export(
        "float-96", "rotation-missing", "rotation-not-exported", "sign vote", "seed is not recorded"
    ),
}

cases = pytest.mark.parametrize(("name", "export"), CASES.items(), ids=CASES)


def _table(folder: Path) -> torch.Tensor:
    return load_file(folder / "model.safetensors")["model.embed_tokens.weight"].float()


def _draft(folder: Path, original: Path) -> Path:
    config = json.loads((original / "config.json").read_text())
    spec = DraftSpec(hidden=config["hidden_size"], vocabulary=config["vocab_size"])
    return spec.write(folder / "draft", _table(original))


@cases
def test_doctor(tmp_path: Path, name: str, export: Export) -> None:
    draft = _draft(tmp_path, EXPORTS / export.original)
    diagnosis = diagnose(str(EXPORTS / name), str(draft), environment={})
    assert diagnosis.verdict == export.verdict
    assert export.code in [finding.code for finding in diagnosis.findings]


@cases
def test_recover(name: str, export: Export) -> None:
    target = TargetFacts.from_folder(EXPORTS / name)
    pairs = pairs_of_original(target, TargetFacts.from_folder(EXPORTS / export.original))
    if export.recovered is None:
        with pytest.raises(RotationError, match=r"no orthogonal matrix|nothing to recover"):
            recover(target, pairs)
        return
    found = recover(target, pairs)
    assert found.how.startswith(export.recovered)
    assert found.centred is export.centred
    # What the tool stored is E Q, rounded to bf16: an exact Q gives the same bits again but for
    # ties, since the tool multiplies in another order. A wrong sign spoils all bits of a column.
    table = _table(EXPORTS / export.original)
    if export.centred:
        means = table.double().mean(1, keepdim=True)
        table = (table - means).to(torch.bfloat16).float()
    stored = target.tensors.read("model.embed_tokens.weight")
    again = found.rotation.rotate(table).to(torch.bfloat16)
    assert float((again == stored).float().mean()) > 0.99
    assert found.fit.residual < 3e-3
    # The head has the final norm's scale folded in: two roundings to bf16.
    before, after = pairs[1].spread(128)
    error = (found.rotation.rotate(before) - after).norm() / after.norm()
    assert float(error) < 4e-3


@cases
def test_plugin(tmp_path: Path, name: str, export: Export) -> None:
    draft = str(_draft(tmp_path, EXPORTS / export.original))
    if export.refusal is not None:
        with pytest.raises(RotationError, match=export.refusal):
            correction_of(EXPORTS / name, draft, Settings())
        return
    correction = correction_of(EXPORTS / name, draft, Settings())
    assert (correction is None) is (export.verdict == "ready")
    if correction is not None:
        target = TargetFacts.from_folder(EXPORTS / name)
        original = TargetFacts.from_folder(EXPORTS / export.original)
        found = recover(target, pairs_of_original(target, original))
        assert correction.rotation.fingerprint == found.rotation.fingerprint
