# SPDX-License-Identifier: Apache-2.0
"""Every verdict, reached by files that show exactly one fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding, write_json, write_sidecar, write_target
from tests.support.drafts import DraftSpec
from tests.support.rotations import dense_rotation, real_rotation, sylvester
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis import environment as surroundings
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.diagnosis.findings import Diagnosis
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.rotation import Rotation

Q = real_rotation(96)
LAYERS = "eagle_aux_hidden_state_layer_ids"


def _target(folder: Path, q: torch.Tensor | None = Q, **changes: Any) -> Path:
    return write_target(folder / "target", q, **{"hidden": 96, **changes})


def _draft(folder: Path, table: torch.Tensor | None = None, **changes: Any) -> Path:
    spec = DraftSpec(**{"hidden": 96, **changes})
    if table is None and spec.own_embedding:
        table = embedding(spec.vocabulary, spec.hidden)
    return spec.write(folder / "draft", table)


def _aligned(folder: Path, target: Path, draft: Path) -> Path:
    rotation = Rotation.from_checkpoint(target)
    plan = plan_alignment(DraftFacts(draft), TargetFacts.from_folder(target), rotation)
    align(plan, folder / "aligned")
    return folder / "aligned"


def _change(folder: Path, **tensors: torch.Tensor | None) -> Path:
    stored = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        stored.pop(name.replace("__", "."))
        if value is not None:
            stored[name.replace("__", ".")] = value.contiguous()
    save_file(stored, folder / "model.safetensors")
    return folder


def _config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    write_json(path, {**json.loads(path.read_text()), **changes})
    return folder


def _transform(name: str, kind: str, targets: object = None, **more: Any) -> dict[str, Any]:
    """llm-compressor's record of one transform."""
    place = {"targets": targets or ["Embedding"], "location": "weight_output", "inverse": False}
    groups = {name: {"type": kind, "apply": [place], "head_dim": None, **more}}
    transforms = {"config_groups": groups}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "transform_config": transforms,
        }
    }


def _ready(folder: Path) -> tuple[Path, Path]:
    return _target(folder, None), _draft(folder)


def _with_plugin(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder)


def _marked(folder: Path) -> tuple[Path, Path]:
    target = _target(folder)
    return target, _aligned(folder, target, _draft(folder))


def _in_rotated_basis(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder, embedding(96, 96) @ Q)


def _table_unrotated_twice(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder, embedding(96, 96) @ Q.T)


def _no_sidecar(folder: Path) -> tuple[Path, Path]:
    return _target(folder, sidecar=False, optional={}), _draft(folder)


def _pointer_to_nothing(folder: Path) -> tuple[Path, Path]:
    return _target(folder, sidecar=False), _draft(folder)


def _no_word_of_it(folder: Path) -> tuple[Path, Path]:
    """NVIDIA/Model-Optimizer#2187: nothing in the metadata, and here not even a norm of ones."""
    target = _target(folder, sidecar=False, norm=torch.linspace(0.5, 1.5, 96))
    (target / "quant_model_description.json").unlink()
    return target, _draft(folder)


def _spinquant(folder: Path) -> tuple[Path, Path]:
    """vllm-project/llm-compressor#1615: R1 is recorded, its matrix is not, and order 96 neither."""
    return _config(_target(folder, None), **_transform("R1", "hadamard")), _draft(folder)


def _spinquant_blocks(folder: Path) -> tuple[Path, Path]:
    """A record from which Q follows: natural-order Hadamard blocks of 32."""
    q = torch.block_diag(*[sylvester(32) / 32**0.5] * 3)
    target = _target(folder, q, sidecar=False)
    (target / "quant_model_description.json").unlink()
    return _config(target, **_transform("R1", "hadamard", head_dim=32)), _draft(folder)


def _random_matrix(folder: Path) -> tuple[Path, Path]:
    return _config(_target(folder, None), **_transform("R1", "random-matrix")), _draft(folder)


def _quip(folder: Path) -> tuple[Path, Path]:
    """Transforms inside layers only: the stream is what it was, though norms are folded."""
    target = _target(folder, None, norm=torch.ones(96))
    inside = _transform("v", "hadamard", targets=["re:.*v_proj$"])
    return _config(target, **inside), _draft(folder)


def _online(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#8401: heads and Kronecker rotations inside layers."""
    target = _target(folder, None)
    metadata = {"quarot": {"max_tp_size": 2, "heads_rotation": {"layers": ["o_proj"]}}}
    description = {"version": "1.0.0", "metadata": metadata, "optional": {}}
    write_json(target / "quant_model_description.json", description)
    return target, _draft(folder)


def _transposed(folder: Path) -> tuple[Path, Path]:
    """intel/auto-round#1884: Q and its transpose mixed up."""
    target = _target(folder)
    write_sidecar(target, Q.T)
    return target, _draft(folder)


def _stale(folder: Path) -> tuple[Path, Path]:
    """msmodelslim#125: a rotation that was tuned after it had been exported."""
    target = _target(folder)
    write_sidecar(target, dense_rotation(96))
    return target, _draft(folder)


def _sidecar_of_an_unrotated_target(folder: Path) -> tuple[Path, Path]:
    target = _target(folder, None)
    write_sidecar(target, Q)
    return target, _draft(folder)


def _sidecar(content: Callable[[Path], object]) -> Callable[[Path], tuple[Path, Path]]:
    def build(folder: Path) -> tuple[Path, Path]:
        target = _target(folder)
        content(target / "optional/quarot.safetensors")
        return target, _draft(folder)

    return build


def _nan_in_q() -> torch.Tensor:
    q = Q.clone()
    q[3, 4] = float("nan")
    return q


def _save(q: torch.Tensor) -> Callable[[Path], object]:
    return lambda path: save_file({"global_rotation": q.contiguous()}, path)


def _tied(folder: Path) -> tuple[Path, Path]:
    """spcl/QuaRot#59: a doubly rotated tied export."""
    return _target(folder, tied=True, broken_tie=True), _draft(folder)


def _other_width(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder, hidden=64, heads=2)


def _other_vocabulary(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder, vocabulary=64)


def _aligned_to_another(folder: Path) -> tuple[Path, Path]:
    first = write_target(folder / "first", dense_rotation(96))
    return _target(folder), _aligned(folder, first, _draft(folder))


def _aligned_on_unrotated(folder: Path) -> tuple[Path, Path]:
    first = write_target(folder / "first", Q)
    return _target(folder, None), _aligned(folder, first, _draft(folder))


def _absolute_ids(folder: Path) -> tuple[Path, Path]:
    """ByteDance/verl-SpeCo#67: target ids where offsets belong."""
    draft = _draft(folder, draft_vocabulary=48)
    return _target(folder), _change(draft, d2t=torch.arange(48) * 2)


def _no_map(folder: Path) -> tuple[Path, Path]:
    """NVIDIA-NeMo/Automodel#2447: a reduced head without a map."""
    return _target(folder), _change(_draft(folder, draft_vocabulary=48), d2t=None)


def _nan_in_fc(folder: Path) -> tuple[Path, Path]:
    draft = _draft(folder)
    weight = load_file(draft / "model.safetensors")["fc.weight"]
    weight[0] = float("inf")
    return _target(folder), _change(draft, fc__weight=weight)


def _aux_states_contradict(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder, aux_states=4)


def _no_head_no_norm(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _draft(folder, own_head=False)


def _target_as_draft(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#17075: the link to the draft opened a target."""
    return pair.PAIR / "target-w8a8-quarot", pair.FLOAT_TARGET


def _dflash(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#11978: another method's draft."""
    draft = _draft(folder)
    tensors = load_file(draft / "model.safetensors")
    tensors["context_proj.weight"] = tensors.pop("fc.weight")
    save_file(tensors, draft / "model.safetensors")
    return _target(folder), draft


def _other_method(folder: Path) -> tuple[Path, Path]:
    return _target(folder), _config(_draft(folder), speculators_model_type="dflash")


def _aligned_without_a_mark(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#5974: a script in circulation folds ``fc`` and leaves no mark."""
    draft = _draft(folder)
    weight = load_file(draft / "model.safetensors")["fc.weight"]
    sizes = torch.ones(96)
    sizes[:8] = 6
    folded = (weight.reshape(-1, 96) / sizes) @ Q
    return _target(folder), _change(draft, fc__weight=folded.reshape(weight.shape))


CASES: dict[str, tuple[Callable[[Path], tuple[Path, Path]], str, str]] = {
    "nothing to correct": (_ready, "ready", "target-not-rotated"),
    "QuIP": (_quip, "ready", "target-not-rotated"),
    "online rotations": (_online, "ready", "target-not-rotated"),
    "rotated, with everything": (_with_plugin, "ready-with-plugin", "rotation-verified"),
    "aligned by this tool": (_marked, "already-aligned", "aligned"),
    "trained on the rotated target": (
        _in_rotated_basis,
        "already-aligned",
        "draft-in-rotated-basis",
    ),
    "table un-rotated twice": (_table_unrotated_twice, "corrected-twice", "table-unrotated-twice"),
    "no sidecar": (_no_sidecar, "rotation-missing", "rotation-not-exported"),
    "sidecar removed": (_pointer_to_nothing, "rotation-missing", "rotation-file-missing"),
    "rotated without a word": (_no_word_of_it, "rotation-missing", "rotated-without-a-word"),
    "SpinQuant": (_spinquant, "rotation-missing", "rotation-not-exported"),
    "SpinQuant in blocks": (_spinquant_blocks, "ready-with-plugin", "rotation-verified"),
    "transposed": (_transposed, "rotation-stale", "rotation-transposed"),
    "stale": (_stale, "rotation-stale", "rotation-stale"),
    "sidecar of an unrotated target": (
        _sidecar_of_an_unrotated_target,
        "rotation-stale",
        "rotation-without-rotated-tables",
    ),
    "NaN in Q": (_sidecar(_save(_nan_in_q())), "broken-target", "rotation-unusable"),
    "Q of another size": (
        _sidecar(_save(real_rotation(128))),
        "broken-target",
        "rotation-unusable",
    ),
    "Q in fp64": (_sidecar(_save(Q.double())), "broken-target", "rotation-unusable"),
    "Q without rows": (_sidecar(_save(torch.zeros(0, 0))), "broken-target", "rotation-unusable"),
    "Q without axes": (_sidecar(_save(torch.tensor(1.0))), "broken-target", "rotation-unusable"),
    "Q not orthogonal": (_sidecar(_save(Q * 1.1)), "broken-target", "rotation-unusable"),
    "sidecar truncated": (
        _sidecar(lambda path: path.write_bytes(path.read_bytes()[:-7])),
        "broken-target",
        "rotation-unusable",
    ),
    "tied and rotated": (_tied, "broken-target", "tied-tables-rotated"),
    "uniform random transform": (_random_matrix, "broken-target", "transform-not-orthogonal"),
    "another width": (_other_width, "mismatched-pair", "hidden-size-mismatch"),
    "another vocabulary": (_other_vocabulary, "mismatched-pair", "vocabulary-mismatch"),
    "aligned to another": (_aligned_to_another, "mismatched-pair", "aligned-to-another"),
    "aligned, target unrotated": (_aligned_on_unrotated, "mismatched-pair", "aligned-to-another"),
    "absolute ids": (_absolute_ids, "broken-draft", "vocabulary-map-wrong"),
    "no vocabulary map": (_no_map, "broken-draft", "vocabulary-map-wrong"),
    "infinite fc": (_nan_in_fc, "broken-draft", "values-not-finite"),
    "four states, three layers": (
        _aux_states_contradict,
        "broken-draft",
        "aux-states-contradict",
    ),
    "no head, no norm": (_no_head_no_norm, "broken-draft", "plugin-refuses"),
    "target as draft": (_target_as_draft, "not-eagle3", "not-eagle3"),
    "no fc": (_dflash, "not-eagle3", "not-eagle3"),
    "another method": (_other_method, "not-eagle3", "not-eagle3"),
    "aligned without a mark": (_aligned_without_a_mark, "unknown", "probably-aligned"),
}


@pytest.mark.parametrize(("build", "verdict", "code"), CASES.values(), ids=CASES)
def test_verdict(
    tmp_path: Path, build: Callable[[Path], tuple[Path, Path]], verdict: str, code: str
) -> None:
    target, draft = build(tmp_path)
    diagnosis = _diagnosed(target, draft)
    assert diagnosis.verdict == verdict, diagnosis.findings
    assert code in [finding.code for finding in diagnosis.findings]
    good = verdict in ("ready", "ready-with-plugin", "already-aligned")
    assert (diagnosis.serve_command is not None) is good
    for finding in diagnosis.findings:
        assert finding.remedy or finding.severity == "info"
        assert "\n" not in finding.message


def _diagnosed(target: Path, draft: Path, original: Path | None = None, **more: Any) -> Diagnosis:
    return diagnose(str(target), str(draft), str(original) if original else None, **more)


def _codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]


def test_original_model_tells_what_the_draft_cannot(tmp_path: Path) -> None:
    original = write_target(tmp_path / "original", None, hidden=96)
    draft = _draft(tmp_path, own_embedding=False)
    target = _target(tmp_path)
    assert "rotation-not-verified" in _codes(_diagnosed(target, draft))
    assert "rotation-verified" in _codes(_diagnosed(target, draft, original))
    write_sidecar(target, Q.T)
    assert _diagnosed(target, draft).verdict == "ready-with-plugin"
    assert _diagnosed(target, draft, original).verdict == "rotation-stale"


def test_tables_that_no_orthogonal_matrix_relates(tmp_path: Path) -> None:
    original = write_target(tmp_path / "original", None, hidden=96)
    target = _target(tmp_path)
    tensors = load_file(target / "model.safetensors")
    name = "model.embed_tokens.weight"
    tensors[name] = (tensors[name].float() * torch.linspace(0.2, 2, 96)).to(torch.bfloat16)
    save_file(tensors, target / "model.safetensors")
    diagnosis = _diagnosed(target, _draft(tmp_path, own_embedding=False), original)
    assert diagnosis.verdict == "broken-target"
    assert "tables-not-related" in _codes(diagnosis)


def test_draft_without_head_is_ready_with_the_original_model(tmp_path: Path) -> None:
    original = write_target(tmp_path / "original", None, hidden=96)
    diagnosis = _diagnosed(_target(tmp_path), _draft(tmp_path, own_head=False), original)
    assert diagnosis.verdict == "ready-with-plugin"
    assert diagnosis.serve_command is not None
    assert f'"original_model": "{original}"' in diagnosis.serve_command


def test_given_rotation_takes_the_place_of_the_targets(tmp_path: Path) -> None:
    target, draft = _no_sidecar(tmp_path)
    file = write_sidecar(tmp_path / "elsewhere", Q)
    diagnosis = _diagnosed(target, draft, rotation_file=file)
    assert diagnosis.verdict == "ready-with-plugin"
    assert diagnosis.serve_command is not None
    assert f'"rotation": "{file}"' in diagnosis.serve_command
    write_sidecar(tmp_path / "elsewhere", Q * 2)
    assert _diagnosed(target, draft, rotation_file=file).verdict == "rotation-stale"


def test_causes_that_are_not_the_rotation(tmp_path: Path) -> None:
    """vllm#50170, vllm-ascend#1305, #12956: named as warnings beside the verdict."""
    target, draft = _with_plugin(tmp_path)
    _config(target, num_hidden_layers=36)
    path = target / "quant_model_description.json"
    write_json(path, {**json.loads(path.read_text()), "kv_cache_type": "C8"})
    environment = {"VLLM_PLUGINS": "ascend", "VLLM_EAGLE3_QUAROT_DISABLE": "1"}
    diagnosis = _diagnosed(target, draft, environment=environment)
    assert diagnosis.verdict == "ready-with-plugin"
    assert {
        "layer-ids-defaulted",
        "kv-cache-quantised",
        "plugin-filtered",
        "plugin-disabled",
    } <= set(_codes(diagnosis))
    message = next(f.message for f in diagnosis.findings if f.code == "layer-ids-defaulted")
    assert "(2, 18, 33)" in message
    _config(draft, **{LAYERS: [2, 18, 40]})
    outside = _diagnosed(target, draft, environment={"VLLM_PLUGINS": "ascend,eagle3_quarot"})
    assert outside.verdict == "mismatched-pair"
    assert "plugin-filtered" not in _codes(outside)


@pytest.mark.parametrize(
    ("vllm", "ascend", "npu", "expected"),
    [
        ("0.23.0", "0.23.0.post1", True, set()),
        ("0.23.0+empty", "0.23.0rc1", True, set()),
        ("0.23.1", "0.22.0", True, {"hosts-mismatched"}),
        ("0.23.0", None, False, set()),
        ("0.23.0", None, True, {"ascend-not-installed"}),
        (None, None, True, set()),
    ],
)
def test_hosts_that_do_not_fit_each_other_or_the_machine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vllm: str | None,
    ascend: str | None,
    npu: bool,
    expected: set[str],
) -> None:
    monkeypatch.setattr(surroundings, "NPU_DEVICE", tmp_path if npu else tmp_path / "absent")
    found = surroundings.examine_environment({}, {"vllm": vllm, "vllm-ascend": ascend})
    named = {finding.code: finding for finding in found}
    assert named.keys() & {"hosts-mismatched", "ascend-not-installed"} == expected
    if "ascend-not-installed" in named:
        assert named["ascend-not-installed"].remedy == "pip install vllm-ascend==0.23.*"


def test_random_table_is_a_warning(tmp_path: Path) -> None:
    """torchspec-project/TorchSpec#38."""
    diagnosis = _diagnosed(_target(tmp_path), _draft(tmp_path, torch.randn(96, 96)))
    assert diagnosis.verdict == "ready-with-plugin"
    assert "embedding-unrelated" in _codes(diagnosis)


@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize("content", ["", "{", "[]", "\xff", '{"hidden_size": "96"}'])
def test_unreadable_configuration_raises_one_clear_error(
    tmp_path: Path, name: str, content: str
) -> None:
    target, draft = _with_plugin(tmp_path)
    path = {"target": target, "draft": draft}[name] / "config.json"
    path.write_bytes(content.encode("latin-1"))
    if content == '{"hidden_size": "96"}' and name == "draft":
        assert _diagnosed(target, draft).verdict == "mismatched-pair"
        return
    with pytest.raises(CheckpointError, match=r"config\.json"):
        _diagnosed(target, draft)
