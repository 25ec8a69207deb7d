# SPDX-License-Identifier: Apache-2.0
"""Mode ``fold`` in the real draft classes: same states as at run time, and no work on a step."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm.logger  # noqa: F401  # configures logging when first imported, which undoes caplog
from safetensors.torch import load_file, save_file

from tests.support import reference_pair
from tests.support.checkpoints import embedding, write_json, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.operators import operators_of_ours
from tests.support.rotations import ROTATIONS, rotated
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError
from vllm_eagle3_quarot.integrations.folded_projection import ProjectionFold, fold_obstacle
from vllm_eagle3_quarot.rotation import Rotation, row_blocks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

#: fp32 through one norm and one product of up to 960 terms, on values of order 1.
FP32_TOLERANCE = 2e-5

LAYERS = "eagle_aux_hidden_state_layer_ids"


def _pair(tmp_path: Path, q: torch.Tensor, spec: DraftSpec) -> tuple[Path, Path]:
    target = complete_target(write_target(tmp_path / "target", q))
    table = embedding(96, spec.hidden) if spec.hidden == spec.input_size else None
    return target, spec.write(tmp_path / "draft", table)


def _combined(pair: tuple[Path, Path], h: torch.Tensor, **settings: object) -> torch.Tensor:
    with loaded_draft(*pair, settings=settings) as draft, torch.inference_mode():
        combined: torch.Tensor = draft.combine_hidden_states(h.clone())
    return combined


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm before fc": {"norm_before_fc": True},
    "norm per aux state": {"fc_norm": True},
    "two aux states": {"aux_states": 2, "fc_norm": True, "extra": {LAYERS: [1, 4]}},
    "five aux states": {
        "aux_states": 5,
        "norm_before_fc": True,
        "extra": {LAYERS: [0, 1, 2, 3, 4]},
    },
}


#: Every rotation with every norm is a matter of the algebra (tests/unit/draft/test_fold.py).
CASES = [
    ("hadamard", "norm before fc"),
    ("12 x 16", "plain"),
    ("12 x 16", "two aux states"),
    ("blocks of 32", "five aux states"),
    ("dense", "norm per aux state"),
]


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_combined_states_equal_those_of_the_original_target(
    tmp_path: Path, name: str, variant: str
) -> None:
    q = ROTATIONS[name]
    spec = DraftSpec(hidden=q.shape[0], **VARIANTS[variant])
    pair = _pair(tmp_path, q, spec)
    h = torch.randn(7, spec.aux_states * q.shape[0])
    expected = _combined(pair, h, mode="off")
    actual = _combined(pair, rotated(h, q), mode="fold")
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


def test_draft_narrower_than_its_target(tmp_path: Path) -> None:
    q = ROTATIONS["12 x 16"]
    pair = _pair(tmp_path, q, DraftSpec(hidden=64, target_hidden=192, norm_before_fc=True))
    h = torch.randn(4, 3 * 192)
    expected = _combined(pair, h, mode="off")
    actual = _combined(pair, rotated(h, q), mode="fold")
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


@pytest.mark.variants(9)
@pytest.mark.parametrize("fc_norm", [False, True])
def test_mask_state_keeps_its_combination(tmp_path: Path, fc_norm: bool) -> None:
    q = ROTATIONS["12 x 16"]
    spec = DraftSpec(hidden=192, mask_hidden=True, fc_norm=fc_norm, extra={"ptd_token_id": 5})
    pair = _pair(tmp_path, q, spec)
    combined = {}
    for mode in ("off", "fold"):
        with (
            loaded_draft(*pair, settings={"mode": mode}, parallel_drafting=True) as draft,
            torch.inference_mode(),
        ):
            combined[mode] = draft.combine_hidden_states(draft.mask_hidden.view(-1))
    assert torch.allclose(combined["off"], combined["fold"], atol=FP32_TOLERANCE)


@pytest.mark.parametrize("variant", ["plain", "norm before fc", "norm per aux state"])
def test_no_operator_of_ours_runs_on_a_step(tmp_path: Path, variant: str) -> None:
    q = ROTATIONS["hadamard"]
    spec = DraftSpec(own_embedding=True, **VARIANTS[variant])
    target = complete_target(write_target(tmp_path / "target", q))
    # Another table than the target's: nothing is shared, so nothing is left to do.
    pair = target, spec.write(tmp_path / "draft", embedding(96, 64, seed=8))
    h, ids = torch.randn(5, spec.aux_states * 64), torch.arange(5)
    seen = {}
    for mode in ("runtime", "fold"):
        with loaded_draft(*pair, settings={"mode": mode}) as draft, torch.no_grad():
            with operators_of_ours() as operators:
                draft.compute_logits(draft.combine_hidden_states(h.clone()))
                draft.embed_input_ids(ids)
            seen[mode] = set(operators)
    assert seen["runtime"]
    assert seen["fold"] == set()


def test_shared_tables_are_corrected_as_at_run_time(tmp_path: Path) -> None:
    """They do not pass through ``fc``, so a fold changes nothing about them."""
    from tests.support.sharing import share_as_the_host_does, target_modules

    q = ROTATIONS["12 x 16"]
    spec = DraftSpec(hidden=192, own_embedding=False, own_head=False)
    pair = _pair(tmp_path, q, spec)
    original = write_target(tmp_path / "original", None, hidden=192)
    stored = load_file(pair[0] / "model.safetensors")
    tables = [stored[n].float() for n in ("model.embed_tokens.weight", "lm_head.weight")]
    ids, x = torch.arange(20), torch.randn(4, 192)
    results = []
    for mode in ("runtime", "fold"):
        settings = {"mode": mode, "original_model": str(original)}
        with loaded_draft(*pair, settings=settings) as draft, torch.inference_mode():
            share_as_the_host_does(draft, target_modules(*tables))
            results.append((draft.embed_input_ids(ids), draft.compute_logits(x)))
    for at_run_time, folded in zip(*results, strict=True):
        assert torch.equal(at_run_time, folded)


def _quantised(tmp_path: Path) -> tuple[Path, Path]:
    target, draft = _pair(tmp_path, ROTATIONS["hadamard"], DraftSpec())
    path = draft / "model.safetensors"
    save_file(reference_pair.quantised(load_file(path)), path)
    write_json(draft / "config.json", reference_pair.quantised_config(DraftSpec().config()))
    return target, draft


@pytest.mark.variants(11)
def test_quantised_projection_is_refused_with_the_reason_and_the_remedy(tmp_path: Path) -> None:
    pair = _quantised(tmp_path)
    with (
        pytest.raises(UnsupportedPairError, match=r"'fc' is quantised") as caught,
        loaded_draft(*pair, settings={"mode": "fold"}),
    ):
        pass
    assert str(pair[1]) in str(caught.value)
    assert "'mode' to 'runtime'" in str(caught.value)


def test_not_strict_corrects_at_run_time_instead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = _quantised(tmp_path)
    h = rotated(torch.randn(3, 3 * 64), ROTATIONS["hadamard"])
    expected = _combined(pair, h, mode="runtime")
    with caplog.at_level(logging.INFO, logger="vllm.eagle3_quarot"):
        actual = _combined(pair, h, mode="fold", strict=False)
    assert torch.equal(actual, expected)
    assert "is quantised" in caplog.text and "'runtime' is used instead" in caplog.text
    assert "mode runtime; target" in caplog.text


def test_draft_without_aux_states_is_refused(tmp_path: Path) -> None:
    """Its input enters the residual stream as it is; only a rotated draft could take it."""
    spec = DraftSpec(extra={"eagle_config": {"use_aux_hidden_state": False}})
    pair = _pair(tmp_path, ROTATIONS["hadamard"], spec)
    original = write_target(tmp_path / "original", None, hidden=64)
    settings = {"mode": "fold", "original_model": str(original)}
    with (
        pytest.raises(UnsupportedPairError, match="post-norm state"),
        loaded_draft(*pair, settings=settings),
    ):
        pass


def test_two_norms_in_a_row_are_refused(tmp_path: Path) -> None:
    """The first one's scale is part of what the second one measures."""
    pair = _pair(tmp_path, ROTATIONS["hadamard"], DraftSpec(norm_before_fc=True, fc_norm=True))
    with (
        pytest.raises(UnsupportedPairError, match="two norms"),
        loaded_draft(*pair, settings={"mode": "fold"}),
    ):
        pass
    h = torch.randn(3, 3 * 64)
    expected = _combined(pair, h, mode="off")
    actual = _combined(pair, rotated(h, ROTATIONS["hadamard"]), mode="fold", strict=False)
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


@pytest.mark.variants(11)
def test_eight_bit_floats_are_refused() -> None:
    from vllm.model_executor.layers.quantization.fp8 import Fp8LinearMethod

    method = object.__new__(Fp8LinearMethod)
    obstacle = fold_obstacle(SimpleNamespace(fc=SimpleNamespace(quant_method=method)))
    assert obstacle is not None and "Fp8LinearMethod" in obstacle


def test_summary_says_what_was_folded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = _pair(tmp_path, ROTATIONS["12 x 16"], DraftSpec(hidden=192))
    with (
        caplog.at_level(logging.INFO, logger="vllm.eagle3_quarot"),
        loaded_draft(*pair, settings={"mode": "fold"}),
    ):
        pass
    (line,) = [m for m in caplog.messages if "target" in m]
    assert "mode fold" in line and "into which Q was folded" in line


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blocks_of_rows_are_rounded_once(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(row_blocks, "ELEMENTS_AT_ONCE", 7 * 240)
    q = ROTATIONS["dense"]
    draft = _Loads(torch.randn(37, 240).to(dtype), (0.5 + torch.rand(240)).to(dtype))
    scaled = draft.weights["fc.weight"].double() * draft.weights["input_norm.weight"].double()
    exact = (scaled.reshape(37, 3, 80) @ q.double()).reshape(37, 240)
    draft.load(ProjectionFold(Rotation.from_dense(q)), "fc.weight", "input_norm.weight")
    folded = draft.model.fc.weight
    assert torch.equal(draft.model.input_norm.weight, torch.ones(240, dtype=dtype))
    # One rounding to the nearest number of the dtype, of a sum that fp32 knows to some 1e-6.
    error = (folded.double() - exact).abs()
    assert bool((error <= torch.finfo(dtype).eps / 2 * exact.abs() + 2e-6).all())


class _Loads:
    """A draft of plain modules whose tensors are loaded by name."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        self.weights = {"fc.weight": weight, "input_norm.weight": scale}
        norm = torch.nn.Module()
        norm.weight = torch.nn.Parameter(torch.ones_like(scale), requires_grad=False)
        self.model = SimpleNamespace(
            fc=torch.nn.Linear(*weight.shape[::-1], bias=False, dtype=weight.dtype),
            input_norm=norm,
        )

    def load(self, fold: ProjectionFold, *names: str) -> None:
        for name, tensor in fold.watched((n, self.weights[n]) for n in names):
            module = self.model.fc if name == "fc.weight" else self.model.input_norm
            module.weight.data.copy_(tensor)
        fold.finish(self)


def test_loading_again_folds_once() -> None:
    """Weights are exchanged under a running engine; only what is new may be folded."""
    fold = ProjectionFold(Rotation.from_dense(ROTATIONS["hadamard"]))
    draft = _Loads(torch.randn(8, 192), 0.5 + torch.rand(192))
    draft.load(fold, "fc.weight", "input_norm.weight")
    once = draft.model.fc.weight.clone()
    draft.load(fold)  # an update of other weights
    assert torch.equal(draft.model.fc.weight, once)
    draft.load(fold, "fc.weight", "input_norm.weight")
    assert torch.equal(draft.model.fc.weight, once)
    with pytest.raises(CheckpointError, match=r"lack input_norm\.weight"):
        draft.load(fold, "fc.weight")
