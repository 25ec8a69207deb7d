# SPDX-License-Identifier: Apache-2.0
"""A rotation is found again from tables, bit for bit where it is a Hadamard form, or refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import reference_pair as pair
from tests.support.checkpoints import write_json
from tests.support.drafts import DraftSpec
from tests.support.rotations import dense_rotation, mersenne_signs, real_rotation, sylvester
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.recorded_rotation import ResidualRotation
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import RotationError, UnsupportedPairError
from vllm_eagle3_quarot.recovery import recover as recovery
from vllm_eagle3_quarot.recovery.recover import Recovered, recover
from vllm_eagle3_quarot.recovery.tables import pairs_of_draft, pairs_of_original
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.rotation.msmodelslim import table_factor
from vllm_eagle3_quarot.rotation.rebuilding import rebuild

ROWS = 3000


def _table(hidden: int, *, seed: int = 1, spectrum: float = 0.0, outliers: int = 0) -> torch.Tensor:
    """Rows of channels whose size falls to ``10^-spectrum``, some of them thirty times larger."""
    generator = torch.Generator().manual_seed(seed)
    mixing, _ = torch.linalg.qr(torch.randn(hidden, hidden, generator=generator).double())
    sizes = 10 ** (-spectrum * torch.rand(hidden, generator=generator).double())
    table = torch.randn(ROWS, hidden, generator=generator).double() * sizes @ mixing
    table[:, torch.randperm(hidden, generator=generator)[:outliers]] *= 30
    return table


def _models(
    folder: Path,
    q: torch.Tensor,
    *,
    spectrum: float = 0.0,
    outliers: int = 0,
    head: bool = True,
    centred: bool = False,
) -> tuple[TargetFacts, TargetFacts]:
    """Target and original in bf16, with heads whose final norm was folded in."""
    hidden = q.shape[0]
    table = _table(hidden, spectrum=spectrum, outliers=outliers).to(torch.bfloat16)
    words = _table(hidden, seed=2).to(torch.bfloat16)
    scale = torch.linspace(0.5, 1.5, hidden).to(torch.bfloat16)
    rotated = table.double() - (table.double().mean(1, keepdim=True) if centred else 0)
    parts = {
        "original": (table, words, scale),
        "target": (
            (rotated @ q.double()).to(torch.bfloat16),
            ((words * scale).double() @ q.double()).to(torch.bfloat16),
            torch.ones_like(scale),
        ),
    }
    for name, (embedding, lm_head, norm) in parts.items():
        (folder / name).mkdir(parents=True)
        tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": norm}
        if head:
            tensors["lm_head.weight"] = lm_head
        save_file(tensors, folder / name / "model.safetensors")
        write_json(folder / name / "config.json", {"hidden_size": hidden, "vocab_size": ROWS})
    return TargetFacts.from_folder(folder / "target"), TargetFacts.from_folder(folder / "original")


def _recover(folder: Path, q: torch.Tensor, **models: object) -> Recovered:
    target, original = _models(folder, q, **models)  # type: ignore[arg-type]
    return recover(target, pairs_of_original(target, original))


def _signed(factor: torch.Tensor, power: int, seed: int) -> torch.Tensor:
    pattern = torch.kron(factor.contiguous(), sylvester(power))
    return mersenne_signs(len(pattern), seed)[:, None] * pattern / len(pattern) ** 0.5


#: Hadamard forms of all tools, none of them symmetric.
FORMS = {
    "msModelSlim, power of two": (real_rotation(128), "msModelSlim seed 1234, block 128"),
    "msModelSlim, 12 x 16": (real_rotation(192), "msModelSlim seed 1234, block 192"),
    "msModelSlim, 160 x 2": (real_rotation(320), "msModelSlim seed 1234, block 320"),
    "msModelSlim, blocks of 32": (real_rotation(160, 32), "msModelSlim seed 1234, block 32"),
    "msModelSlim, blocks of 64": (real_rotation(192, 64), "sign vote"),
    "seed 42": (_signed(torch.ones(1, 1), 128, 42), "msModelSlim seed 42, block 128"),
    "unknown seed": (_signed(torch.ones(1, 1), 256, 9), "sign vote"),
    "unknown seed, 12 x 16": (_signed(table_factor(12), 16, 9), "sign vote"),
    "unknown seed, 28 x 8": (_signed(table_factor(28), 8, 9), "sign vote"),
    "Quark and llm-compressor, K x H": (_signed(table_factor(20).T, 8, 5), "sign vote"),
    "llm-compressor, order 48": (
        _signed(torch.kron(table_factor(12), sylvester(4)), 4, 67280),
        "sign vote",
    ),
}


@pytest.mark.parametrize(("q", "how"), FORMS.values(), ids=FORMS)
def test_hadamard_forms_come_back_bit_for_bit(tmp_path: Path, q: torch.Tensor, how: str) -> None:
    found = _recover(tmp_path, q)
    assert found.how == how
    scale = torch.tensor(1.0) / torch.sqrt(torch.tensor(float(torch.count_nonzero(q[0]))))
    assert torch.equal(found.rotation.dense(), torch.sign(q) * scale)
    # bf16 rounding of the rotated table: 2^-9 per entry, uniformly distributed.
    assert found.fit.residual < 3e-3
    assert found.fit.min_cosine > 0.999
    assert found.fit.orthogonality < 1e-5


@pytest.mark.parametrize("how", ["unknown seed", "unknown seed, 28 x 8"])
def test_badly_conditioned_tables_do_not_mislead_the_vote(tmp_path: Path, how: str) -> None:
    q, _ = FORMS[how]
    found = _recover(tmp_path, q, spectrum=2.5, outliers=8)
    assert found.how == "sign vote"
    assert torch.equal(torch.sign(found.rotation.dense()), torch.sign(q))


def test_a_form_that_no_step_knows_is_snapped(tmp_path: Path) -> None:
    """Two block rotations with a shift between them: entries of one size, no product structure."""
    shift = torch.roll(torch.eye(128), 8, dims=0)
    q = real_rotation(128, 16) @ shift @ real_rotation(128, 16)
    permuted = q[torch.randperm(128, generator=torch.Generator().manual_seed(3))]
    found = _recover(tmp_path, permuted)
    assert found.how.startswith("Procrustes")
    error = (found.rotation.dense() - permuted).norm() / permuted.norm()
    assert error < 5e-4


def test_permuted_hadamard_matrix_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Voted for as one factor up to order 512; beyond, the dense fit is snapped."""
    q = real_rotation(128)[:, torch.randperm(128, generator=torch.Generator().manual_seed(3))]
    found = _recover(tmp_path / "vote", q)
    assert found.how == "sign vote"
    assert torch.equal(found.rotation.dense(), q)
    monkeypatch.setattr(recovery, "vote", lambda before, after: None)
    found = _recover(tmp_path / "fit", q)
    assert found.how == "Procrustes, snapped"
    assert torch.equal(found.rotation.dense(), q)


@pytest.mark.parametrize("spectrum", [0.0, 1.0, 2.5])
def test_dense_rotation_with_embedding_and_head(tmp_path: Path, spectrum: float) -> None:
    """adapt_rotation: learned, exported nowhere; a well-conditioned head holds the error down."""
    q = dense_rotation(128)
    found = _recover(tmp_path, q, spectrum=spectrum, outliers=4 if spectrum else 0)
    assert found.how == "Procrustes"
    assert found.rotation.kind == "dense"
    error = float((found.rotation.dense() - q).norm() / q.norm())
    assert error < 5e-4


@pytest.mark.parametrize("distance", [0.03, 0.1, 0.25])
def test_hadamard_matrix_that_was_trained_further(tmp_path: Path, distance: float) -> None:
    """adapt_rotation starts from a Hadamard matrix; near it is not yet it."""
    generator = torch.Generator().manual_seed(4)
    skew = torch.randn(192, 192, generator=generator).double()
    skew = skew - skew.T
    q = (
        real_rotation(192).double() @ torch.matrix_exp(skew * distance / skew.norm() * 192**0.5)
    ).float()
    found = _recover(tmp_path, q)
    assert found.how == "Procrustes"
    error = float((found.rotation.dense() - q).norm() / q.norm())
    assert error < 5e-4


@pytest.mark.parametrize("block", [None, 32])
def test_llm_compressors_random_hadamard(tmp_path: Path, block: int | None) -> None:
    """Its table of order 32 is no product with a natural-order Hadamard matrix."""
    record = ResidualRotation("llm-compressor", "R1", "random-hadamard", block)
    truth = rebuild(record, 192, tmp_path)
    target, original = _models(tmp_path, truth.dense())
    found = recover(target, pairs_of_original(target, original))
    assert found.how == "sign vote"
    assert found.rotation.fingerprint == truth.fingerprint
    place = {"targets": ["Embedding"], "location": "weight_output"}
    groups = {"R1": {"type": "random-hadamard", "head_dim": block, "apply": [place]}}
    quantization = {
        "quant_method": "compressed-tensors",
        "transform_config": {"config_groups": groups},
    }
    config = {"hidden_size": 192, "vocab_size": ROWS, "quantization_config": quantization}
    write_json(target.folder / "config.json", config)
    target = TargetFacts.from_folder(target.folder)
    found = recover(target, pairs_of_original(target, original))
    assert found.how.startswith("record of llm-compressor")
    assert found.rotation.fingerprint == truth.fingerprint


def test_centred_embedding_is_recognised(tmp_path: Path) -> None:
    """vllm-project/llm-compressor#1615: the mean of every row is taken away before rotating."""
    q = _signed(torch.ones(1, 1), 128, 9)
    target, original = _models(tmp_path, q, centred=True)
    tensors = load_file(original.folder / "model.safetensors")
    table = tensors["model.embed_tokens.weight"].float()
    tensors["model.embed_tokens.weight"] = (table + table.std() / 2).to(torch.bfloat16)
    save_file(tensors, original.folder / "model.safetensors")
    found = recover(target, pairs_of_original(target, TargetFacts.from_folder(original.folder)))
    assert torch.equal(torch.sign(found.rotation.dense()), torch.sign(q))
    assert found.centred
    assert found.fit.residual < 3e-3
    dense = dense_rotation(128)
    target, original = _models(tmp_path / "dense", dense, centred=True)
    found = recover(target, pairs_of_original(target, original))
    assert (found.rotation.dense() - dense).norm() < 5e-3 * dense.norm()


def test_file_is_taken_when_it_fits_and_only_then(tmp_path: Path) -> None:
    q = dense_rotation(128)
    target, original = _models(tmp_path, q)
    sidecar = target.folder / "optional/quarot.safetensors"
    sidecar.parent.mkdir()
    save_file({"global_rotation": q.contiguous()}, sidecar)
    target = TargetFacts.from_folder(target.folder)
    found = recover(target, pairs_of_original(target, original))
    assert found.how == f"file {sidecar}"
    save_file({"global_rotation": q.T.contiguous()}, sidecar)
    target = TargetFacts.from_folder(target.folder)
    assert recover(target, pairs_of_original(target, original)).how == "Procrustes"


def test_recipe_names_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, original = _models(tmp_path, real_rotation(192, 64))
    recipe = "spec:\n  process:\n  - type: quarot\n    block_size: 64\n"
    (target.folder / "Qwen3-8B_best_practice.yaml").write_text(recipe)
    monkeypatch.setattr(recovery, "vote", lambda before, after: None)
    found = recover(target, pairs_of_original(target, original))
    assert found.how == "msModelSlim seed 1234, block 64"


def test_draft_is_a_witness_even_trained_a_little_further(tmp_path: Path) -> None:
    q = _signed(table_factor(12), 16, 9)
    target, original = _models(tmp_path, q)
    table = load_file(original.folder / "model.safetensors")["model.embed_tokens.weight"].float()
    moved = table * (1 + 0.05 * torch.randn(table.shape))
    draft = DraftSpec(hidden=192, vocabulary=ROWS).write(tmp_path / "draft", moved)
    found = recover(target, pairs_of_draft(target, DraftFacts(draft)))
    assert torch.equal(torch.sign(found.rotation.dense()), torch.sign(q))
    assert 0.03 < found.fit.residual < 0.1


def test_real_pair_without_its_sidecar(tmp_path: Path) -> None:
    """The rotation that the real tool exported, from the tables alone, in all three ways."""
    source = pair.PAIR / "target-w8a8-quarot"
    shutil.copytree(source, tmp_path / "t", ignore=shutil.ignore_patterns("optional"))
    description = tmp_path / "t/quant_model_description.json"
    description.unlink()
    truth = Rotation.from_checkpoint(source)
    target = TargetFacts.from_folder(tmp_path / "t")
    original = TargetFacts.from_folder(pair.FLOAT_TARGET)
    found = recover(target, pairs_of_original(target, original))
    assert found.how == "msModelSlim seed 1234, block 192"
    assert found.rotation.fingerprint == truth.fingerprint
    by_draft = recover(target, pairs_of_draft(target, DraftFacts(pair.DRAFT)))
    assert by_draft.rotation.fingerprint == truth.fingerprint


def test_vote_alone_on_the_real_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SEEDS", ())
    shutil.copytree(
        pair.PAIR / "target-w8a8-quarot",
        tmp_path / "t",
        ignore=shutil.ignore_patterns("optional", "quant_model_description.json"),
    )
    target = TargetFacts.from_folder(tmp_path / "t")
    found = recover(target, pairs_of_draft(target, DraftFacts(pair.DRAFT)))
    assert found.how == "sign vote"
    truth = Rotation.from_checkpoint(pair.PAIR / "target-w8a8-quarot")
    assert found.rotation.fingerprint == truth.fingerprint


def test_no_orthogonal_matrix_is_refused(tmp_path: Path) -> None:
    """vllm-project/llm-compressor: ``random-matrix`` is uniform numbers, not a rotation."""
    with pytest.raises(RotationError, match="no orthogonal matrix maps"):
        _recover(tmp_path, torch.rand(128, 128), head=False)


def test_another_model_is_refused(tmp_path: Path) -> None:
    target, _ = _models(tmp_path / "a", real_rotation(128))
    _, other = _models(tmp_path / "b", real_rotation(128), spectrum=0.5)
    with pytest.raises(RotationError, match="Is the other model the one"):
        recover(target, pairs_of_original(target, other)[:1])


def test_unrotated_target_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(RotationError, match="nothing to recover"):
        _recover(tmp_path, torch.eye(128))


def test_too_few_rows_for_a_dense_rotation(tmp_path: Path) -> None:
    target, original = _models(tmp_path, dense_rotation(128), head=False)
    for facts in (target, original):
        tensors = load_file(facts.folder / "model.safetensors")
        few = {name: value[:200].clone() for name, value in tensors.items()}
        save_file(few, facts.folder / "model.safetensors")
    target, original = (TargetFacts.from_folder(f.folder) for f in (target, original))
    with pytest.raises(RotationError, match="too few different rows"):
        recover(target, pairs_of_original(target, original))


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    target, original = _models(tmp_path, real_rotation(128))
    tensors = load_file(target.folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][0, 0] = float("inf")
    save_file(tensors, target.folder / "model.safetensors")
    with pytest.raises(RotationError, match="NaN or infinite"):
        recover(TargetFacts.from_folder(target.folder), pairs_of_original(target, original))


def test_draft_without_or_with_another_table_is_no_witness(tmp_path: Path) -> None:
    target, _ = _models(tmp_path, real_rotation(128))
    without = DraftSpec(hidden=128, own_embedding=False).write(tmp_path / "without")
    with pytest.raises(UnsupportedPairError, match="no token embedding"):
        pairs_of_draft(target, DraftFacts(without))
    narrow = DraftSpec(hidden=64).write(tmp_path / "narrow")
    with pytest.raises(UnsupportedPairError, match="keeps the width"):
        pairs_of_draft(target, DraftFacts(narrow))
