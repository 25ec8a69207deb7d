# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is a download from strangers: whatever stands in it, one answer or one error."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.support.checkpoints import embedding, write_json, write_sidecar, write_target
from tests.support.drafts import DraftSpec
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import norms_before_projection, plan_alignment
from vllm_eagle3_quarot.checkpoint.description import QuantDescription
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.marker import AlignmentMarker
from vllm_eagle3_quarot.checkpoint.sidecar import find_sidecar
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.draft.aux_states import aux_states_of
from vllm_eagle3_quarot.draft.vocabulary import verify_vocabulary
from vllm_eagle3_quarot.errors import QuaRotError
from vllm_eagle3_quarot.recovery.recover import recover
from vllm_eagle3_quarot.recovery.tables import pairs_of_draft, pairs_of_original
from vllm_eagle3_quarot.rotation import Rotation

Q = real_rotation(96)

#: What may stand where something else is expected.
WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2**63,
    1e308,
    float("nan"),
    "",
    "x",
    "../../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    [],
    [[]],
    [1, "a", None],
    [2, 1, 3],
    {},
    {"": {}},
    {"quarot": []},
    {"quarot": {"rotation_map": {"global_rotation": "../x"}}},
)


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    target = write_target(tmp_path / "target", Q)
    extra = {
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": None},
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        "target_hidden_size": 96,
        "quantization_config": None,
        "speculators_config": {"verifier": {"name_or_path": "x"}},
        "speculators_model_type": "eagle3",
        "eagle3_quarot": None,
        "transformer_layer_config": None,
        "num_aux_hidden_states": 3,
        "norm_before_fc": False,
        "fc_norm": False,
    }
    spec = DraftSpec(hidden=96, draft_vocabulary=48, extra=extra)
    draft = spec.write(tmp_path / "draft", embedding(96, 96))
    config = json.loads((target / "config.json").read_text())
    groups = {"config_groups": {"R1": {"type": "hadamard"}}}
    quantization = {"transform_config": groups, "algo_config": [{"name": "rotation", "r1": True}]}
    more = {"quantization_config": quantization, "num_hidden_layers": 8, "text_config": None}
    write_json(target / "config.json", {**config, **more})
    return target, draft


def _mutate(document: Any, rng: random.Random) -> Any:
    """One value anywhere in the document, exchanged or taken away."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        key = rng.choice(list(document))
        changed = dict(document)
        if rng.random() < 0.1:
            del changed[key]
        else:
            deeper = isinstance(document[key], dict | list) and rng.random() < 0.7
            changed[key] = _mutate(document[key], rng) if deeper else rng.choice(WRONG)
        return changed
    if isinstance(document, list) and document and rng.random() < 0.7:
        changed_list = list(document)
        changed_list[rng.randrange(len(document))] = rng.choice(WRONG)
        return changed_list
    return rng.choice(WRONG)


def _diagnosed(target: Path, draft: Path) -> bool:
    try:
        document = diagnose(str(target), str(draft), environment={}).document()
    except QuaRotError as error:
        assert "\n" not in str(error)
        return False
    assert json.loads(json.dumps(document))["verdict"]
    return True


def _mutations(files: list[Path], count: int) -> Iterator[Path]:
    """Each file in turn with something wrong in it, and right again afterwards."""
    originals = {path: json.loads(path.read_text()) for path in files}
    rng = random.Random(5)
    for _ in range(count):
        path = rng.choice(files)
        document = originals[path]
        for _ in range(rng.randint(1, 3)):
            document = _mutate(document, rng)
        path.unlink()  # some file systems flush a file that is written over
        write_json(path, document)
        yield path
        write_json(path, originals[path])


def test_wrong_values_anywhere_in_the_json_files(models: tuple[Path, Path]) -> None:
    target, draft = models
    files = [folder / "config.json" for folder in models]
    files.append(target / "quant_model_description.json")
    answered = sum(_diagnosed(target, draft) for _ in _mutations(files, 300))
    assert answered > 50


def test_ten_thousand_wrong_documents_and_the_parsers(models: tuple[Path, Path]) -> None:
    target, draft = models
    files = [target / "quant_model_description.json", draft / "config.json"]
    refused = 0
    for path in _mutations(files, 10_000):
        try:
            if path.parent == target:
                find_sidecar(target, QuantDescription.from_folder(target))
                continue
            facts = DraftFacts(draft)
            AlignmentMarker.from_document(facts.config, path)
            aux_states_of(facts, 96)
            norms_before_projection(facts, 3)
            verify_vocabulary(facts)
        except QuaRotError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 1000


@pytest.mark.parametrize("pointer", ["../../x", "/etc/passwd", "a\0b", "x" * 5000, "."])
def test_pointer_out_of_the_checkpoint_is_not_followed(
    models: tuple[Path, Path], pointer: str
) -> None:
    target, draft = models
    path = target / "quant_model_description.json"
    quarot = {"quarot": {"rotation_map": {"global_rotation": pointer}}}
    write_json(path, {**json.loads(path.read_text()), "optional": quarot})
    _diagnosed(target, draft)


def test_sidecar_link_out_of_the_checkpoint_is_not_followed(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    target, draft = models
    outside = write_sidecar(tmp_path / "outside", Q)
    inside = target / "optional/quarot.safetensors"
    inside.unlink()
    inside.symlink_to(outside)
    diagnosis = diagnose(str(target), str(draft), environment={})
    assert diagnosis.verdict == "rotation-missing"


BOMBS = {
    "deep nesting": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "many digits": '{"hidden_size": ' + "9" * 50_000 + "}",
    "surrogates": '{"hidden_size": "\\ud800"}',
    "name twice": '{"hidden_size": 96, "hidden_size": 1}',
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("name", ["config.json", "quant_model_description.json"])
def test_json_bombs(models: tuple[Path, Path], name: str, content: str) -> None:
    target, draft = models
    (target / name).write_text(content)
    _diagnosed(target, draft)


def test_damaged_headers_of_weights(models: tuple[Path, Path]) -> None:
    target, draft = models
    rng = random.Random(3)
    for folder in (target, draft):
        path = folder / "model.safetensors"
        original = path.read_bytes()
        header = 8 + int.from_bytes(original[:8], "little")
        for _ in range(150):
            content = bytearray(original)
            for _ in range(rng.randint(1, 3)):
                content[rng.randrange(header)] = rng.choice(b'0123456789{}[]",:\xff\x00')
            path.unlink()
            path.write_bytes(content)
            _diagnosed(target, draft)
        path.write_bytes(original[: header + 10])
        _diagnosed(target, draft)
        path.write_bytes(original)


def test_index_that_names_missing_or_foreign_files(models: tuple[Path, Path]) -> None:
    target, draft = models
    for shard in ("missing.safetensors", "../draft/model.safetensors", 5, None, "config.json"):
        index = {"weight_map": {"model.embed_tokens.weight": shard, "model.norm.weight": shard}}
        write_json(target / "model.safetensors.index.json", index)
        assert not _diagnosed(target, draft)


def test_tensors_of_strange_shapes(models: tuple[Path, Path]) -> None:
    target, draft = models
    shapes: list[torch.Tensor] = [torch.zeros(0, 96), torch.tensor(1.0), torch.zeros(3), Q[None]]
    for value in (*shapes, torch.zeros(4, 96, dtype=torch.int8)):
        for folder, name in (
            (target, "model.embed_tokens.weight"),
            (target, "model.norm.weight"),
            (draft, "embed_tokens.weight"),
            (draft, "fc.weight"),
            (draft, "d2t"),
        ):
            path = folder / "model.safetensors"
            original = path.read_bytes()
            fc = {} if folder == target else {"fc.weight": torch.zeros(96, 288)}
            save_file({**fc, name: value.clone()}, path)
            _diagnosed(target, draft)
            _aligned_and_recovered(target, draft)
            path.write_bytes(original)


def _aligned_and_recovered(target: Path, draft: Path) -> None:
    """The other commands on the same files."""
    facts = TargetFacts.from_folder(target)
    with suppress(QuaRotError):
        align(
            plan_alignment(DraftFacts(draft), facts, Rotation.from_dense(Q)),
            target.with_name("aligned"),
            overwrite=True,
        )
    with suppress(QuaRotError):
        recover(facts, pairs_of_draft(facts, DraftFacts(draft)))
    with suppress(QuaRotError):
        recover(facts, pairs_of_original(facts, facts))


def test_pickle_that_wants_to_run_code(models: tuple[Path, Path], tmp_path: Path) -> None:
    target, draft = models
    (draft / "model.safetensors").unlink()
    witness = tmp_path / "ran"
    code = f"cos\nsystem\n(S'touch {witness}'\ntR."
    (draft / "pytorch_model.bin").write_bytes(code.encode())
    assert not _diagnosed(target, draft)
    assert not witness.exists()
