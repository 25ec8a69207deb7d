# SPDX-License-Identifier: Apache-2.0
"""Every shape of Eagle3 draft, in the real engine: the same proposals as on the unrotated target.

Targets are the reference target in fp32 as it is, and rotated. A draft that is corrected exactly
proposes the same tokens on both; the comparison is of token ids, call by call, so a wrong
correction of any part cannot hide behind a good acceptance rate. Random drafts serve where no
trained one exists: their proposals are as sensitive to their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding
from tests.support.drafts import DraftSpec
from tests.support.proposals import Job, Outcome, run
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import dense_rotation, real_rotation

#: One process builds all engines of this file, on two cores that may be busy.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

LAYERS = "eagle_aux_hidden_state_layer_ids"

#: Shape of the reference target.
SHAPE: dict[str, Any] = {
    "hidden": 192,
    "vocabulary": 2048,
    "heads": 3,
    "kv_heads": 1,
    "head_dim": 64,
}


def _random(**changes: Any) -> Callable[[Path], Path]:
    spec = DraftSpec(**{**SHAPE, **changes})
    # A table of random entries would be taken for one that was never trained.
    table = embedding(spec.vocabulary, spec.hidden, seed=8) if spec.own_embedding else None
    return lambda folder: spec.write(folder, table)


def _trained(**changes: Any) -> Callable[[Path], Path]:
    return lambda folder: pair.variant(folder, **changes)


def _architecture(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda config: {**config, "architectures": [name]}


@dataclass(frozen=True)
class Variant:
    """A draft, the row of docs/en/drafts.md that it stands for, and what it takes to serve it."""

    row: int
    write: Callable[[Path], Path]
    settings: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)
    original: bool = False


VARIANTS: dict[str, Variant] = {
    "plain": Variant(1, _trained()),
    "native names": Variant(1, _trained(change_tensors=pair.native_names)),
    "speculators": Variant(
        1, _trained(change_tensors=pair.native_names, change_config=pair.speculators_config)
    ),
    "pickled": Variant(1, _trained(pickled=True)),
    "architecture Eagle3Qwen3vlForCausalLM": Variant(
        1, _trained(change_config=_architecture("Eagle3Qwen3vlForCausalLM"))
    ),
    "architecture LlamaForCausalLM": Variant(
        1, _trained(change_config=_architecture("LlamaForCausalLM"))
    ),
    "no embedding": Variant(2, _trained(change_tensors=pair.without("embed_tokens.weight"))),
    "own embedding": Variant(2, _random()),
    "no head": Variant(3, _random(own_head=False), original=True),
    "neither embedding nor head": Variant(
        4, _random(own_embedding=False, own_head=False), original=True
    ),
    "full head": Variant(3, _random(draft_vocabulary=None)),
    "reduced head": Variant(3, _random(draft_vocabulary=1000)),
    "norm before fc": Variant(5, _random(norm_before_fc=True)),
    "norm per aux state": Variant(5, _random(fc_norm=True)),
    "norm output": Variant(5, _random(extra={"norm_output": True})),
    "norm before residual": Variant(5, _random(extra={"norm_before_residual": True})),
    "one aux state": Variant(6, _random(aux_states=1, extra={LAYERS: [4]})),
    "two aux states": Variant(6, _random(aux_states=2, extra={LAYERS: [1, 6]})),
    "four aux states": Variant(
        6, _random(aux_states=4, extra={"eagle_config": {LAYERS: [0, 2, 5, 7]}})
    ),
    "five aux states": Variant(6, _random(aux_states=5, extra={LAYERS: [0, 1, 3, 5, 7]})),
    "layer ids null": Variant(6, _random(extra={LAYERS: None})),
    "post-norm state": Variant(
        7, _random(extra={"eagle_config": {"use_aux_hidden_state": False}}), original=True
    ),
    "narrower than the target": Variant(
        8, _random(hidden=128, target_hidden=192, heads=2, head_dim=64)
    ),
    "two layers": Variant(10, _random(layers=2)),
    "other head size": Variant(10, _random(heads=6, kv_heads=2, head_dim=32)),
    "mask state": Variant(
        9,
        _random(mask_hidden=True, extra={"ptd_token_id": 3}),
        speculation={"parallel_drafting": True},
    ),
}


@dataclass(frozen=True)
class Targets:
    original: Path
    rotated: Path


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Targets:
    folder = tmp_path_factory.mktemp("targets")
    return Targets(
        copy_in_fp32(pair.FLOAT_TARGET, folder / "original"),
        rotated_copy(pair.FLOAT_TARGET, folder / "rotated", real_rotation(192)),
    )


#: Variants that are also served in mode ``fold``: whatever stands in front of ``fc`` or behind it.
FOLDED = (
    "plain",
    "neither embedding nor head",
    "norm before fc",
    "norm per aux state",
    "one aux state",
    "five aux states",
    "narrower than the target",
    "mask state",
)


def _cases(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, id=f"row {VARIANTS[name].row}-{name}") for name in names]


def _jobs(variant: Variant, draft: Path, targets: Targets, rotated: Path) -> list[Job]:
    settings = dict(variant.settings)
    if variant.original:
        settings["original_model"] = str(targets.original)
    common: dict[str, Any] = {
        "draft": str(draft),
        "prompts": pair.prompts(3),
        "max_tokens": 16,
        "settings": settings,
        "speculation": variant.speculation,
    }
    return [
        Job(target=str(targets.original), **common),
        Job(target=str(rotated), **common),
    ]


#: What came of a variant: ``original``, ``rotated``, and for some ``folded``.
Outcomes = dict[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcomes(targets: Targets, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All variants on both targets, in one process: starting one costs more than ten engines."""
    folder = tmp_path_factory.mktemp("drafts")
    jobs: dict[tuple[str, str], Job] = {}
    for number, (name, variant) in enumerate(VARIANTS.items()):
        draft = variant.write(folder / str(number))
        original, rotated = _jobs(variant, draft, targets, targets.rotated)
        jobs |= {(name, "original"): original, (name, "rotated"): rotated}
        if name in FOLDED:
            jobs[name, "folded"] = replace(rotated, settings={**rotated.settings, "mode": "fold"})
    return dict(zip(jobs, run(list(jobs.values())), strict=True))


@pytest.mark.variants
@pytest.mark.parametrize("name", _cases(VARIANTS))
def test_proposals_equal_those_on_the_unrotated_target(name: str, outcomes: Outcomes) -> None:
    original, rotated = outcomes[name, "original"], outcomes[name, "rotated"]
    assert rotated.tokens == original.tokens
    assert rotated.proposals == original.proposals
    assert "un-rotated before norms and fc" in rotated.log
    assert "un-rotated before norms and fc" not in original.log


@pytest.mark.variants(6)
@pytest.mark.parametrize("name", ["plain", "layer ids null"])
def test_default_layers_are_named(name: str, outcomes: Outcomes) -> None:
    """The reference target has 8 layers."""
    assert "layers (2, 4, 5) (the host's default" in outcomes[name, "rotated"].log


@pytest.mark.variants
@pytest.mark.parametrize("name", _cases(FOLDED))
def test_folded_draft_proposes_the_same(name: str, outcomes: Outcomes) -> None:
    folded, rotated = outcomes[name, "folded"], outcomes[name, "rotated"]
    assert folded.tokens == rotated.tokens
    assert folded.proposals == rotated.proposals
    assert "into which Q was folded" in folded.log
    assert "un-rotated before norms and fc" not in folded.log


def test_trained_draft_is_accepted_and_only_when_corrected(
    targets: Targets, outcomes: Outcomes
) -> None:
    """Guards the comparison: without the correction proposals differ and are rejected."""
    (job,) = _jobs(
        replace(VARIANTS["plain"], settings={"mode": "off"}), pair.DRAFT, targets, targets.rotated
    )[1:]
    (off,) = run([job])
    original, corrected = outcomes["plain", "original"], outcomes["plain", "rotated"]
    assert off.tokens == original.tokens
    assert off.proposals != original.proposals
    # The pair's own acceptance is above 0.8; an uncorrected draft stays near zero.
    assert corrected.acceptance == original.acceptance > 0.6
    assert off.acceptance < 0.1


ROTATIONS = {
    "blocks of 32": real_rotation(192, 32),
    "dense": dense_rotation(192),
    "shifted product": real_rotation(192, 32)
    @ torch.roll(torch.eye(192), 16, dims=0)
    @ real_rotation(192, 32),
}


def test_other_rotations(targets: Targets, tmp_path: Path) -> None:
    """Block, learned dense and shifted rotations; the dense one as a supplied file."""
    variant = VARIANTS["neither embedding nor head"]
    draft = variant.write(tmp_path / "draft")
    jobs = [_jobs(variant, draft, targets, targets.rotated)[0]]
    for name, q in ROTATIONS.items():
        rotated = rotated_copy(pair.FLOAT_TARGET, tmp_path / name, q)
        job = _jobs(variant, draft, targets, rotated)[1]
        if name == "dense":
            supplied = (rotated / "optional/quarot.safetensors").rename(tmp_path / "q.safetensors")
            (rotated / "quant_model_description.json").unlink()
            job.settings["rotation"] = str(supplied)
        jobs.append(job)
    original, *others = run(jobs)
    for outcome in others:
        assert outcome.tokens == original.tokens
        assert outcome.proposals == original.proposals


@pytest.mark.variants(13)
@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_draft_of_another_dtype_is_cast(targets: Targets, tmp_path: Path, dtype: str) -> None:
    """EAGLE#259: float16 and float32 drafts on a bf16 target."""
    jobs = []
    for stored in (torch.float16, torch.float32):
        draft = pair.variant(
            tmp_path / str(stored),
            lambda tensors, stored=stored: {  # type: ignore[misc]
                n: v.to(stored) if v.is_floating_point() else v for n, v in tensors.items()
            },
            lambda config, stored=stored: {  # type: ignore[misc]
                **config,
                "torch_dtype": str(stored).removeprefix("torch."),
            },
        )
        for target in (targets.original, targets.rotated):
            jobs.append(Job(str(target), str(draft), pair.prompts(8), max_tokens=48, dtype=dtype))
    results = run(jobs)
    for original, rotated in zip(results[::2], results[1::2], strict=True):
        # bf16 rounds rotated and unrotated states differently: rates agree, single tokens need not.
        assert rotated.acceptance == pytest.approx(original.acceptance, abs=0.06)
        assert rotated.acceptance > 0.6


def test_compiled_graphs_propose_the_same(
    targets: Targets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile is the server's default; compiled code comes from a cold, then a warm cache."""
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    eager = Job(str(targets.rotated), str(pair.DRAFT), pair.prompts(3), max_tokens=16)
    compiled = replace(eager, enforce_eager=False)
    expected, cold, warm = run([eager, compiled, compiled])
    assert cold.proposals == warm.proposals == expected.proposals
    assert cold.tokens == warm.tokens == expected.tokens


@pytest.mark.variants(11)
def test_quantised_draft_is_corrected_at_run_time(targets: Targets, tmp_path: Path) -> None:
    """int8 ``fc``: its weights need not change, since its input is what is corrected."""
    draft = pair.variant(tmp_path / "draft", pair.quantised, pair.quantised_config)
    jobs = [
        Job(str(target), str(draft), pair.prompts(8), max_tokens=48, settings=settings)
        for target, settings in (
            (targets.original, {}),
            (targets.rotated, {}),
            (targets.rotated, {"mode": "off"}),
        )
    ]
    original, rotated, off = run(jobs)
    # Activations are quantised: a difference in the last fp32 bit can change an int8 step.
    assert rotated.acceptance == pytest.approx(original.acceptance, abs=0.06)
    assert rotated.acceptance > 0.6
    assert off.acceptance < 0.1
