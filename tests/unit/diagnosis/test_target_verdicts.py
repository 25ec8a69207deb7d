# SPDX-License-Identifier: Apache-2.0
"""Verdicts that a target leads to: is it rotated, is its rotation at hand and right?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.support.checkpoints import write_json, write_sidecar
from tests.support.faulty_pairs import (
    Builder,
    Cases,
    Q,
    check_verdict,
    configure,
    draft_of,
    target_of,
)
from tests.support.rotations import dense_rotation, real_rotation, sylvester


def transform(name: str, kind: str, targets: object = None, **more: Any) -> dict[str, Any]:
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
    return target_of(folder, None), draft_of(folder)


def _with_plugin(folder: Path) -> tuple[Path, Path]:
    return target_of(folder), draft_of(folder)


def _no_sidecar(folder: Path) -> tuple[Path, Path]:
    return target_of(folder, sidecar=False, optional={}), draft_of(folder)


def _pointer_to_nothing(folder: Path) -> tuple[Path, Path]:
    return target_of(folder, sidecar=False), draft_of(folder)


def _no_word_of_it(folder: Path) -> tuple[Path, Path]:
    """NVIDIA/Model-Optimizer#2187: nothing in the metadata, and here not even a norm of ones."""
    target = target_of(folder, sidecar=False, norm=torch.linspace(0.5, 1.5, 96))
    (target / "quant_model_description.json").unlink()
    return target, draft_of(folder)


def _spinquant(folder: Path) -> tuple[Path, Path]:
    """vllm-project/llm-compressor#1615: R1 is recorded, its matrix is not, and order 96 neither."""
    return configure(target_of(folder, None), **transform("R1", "hadamard")), draft_of(folder)


def _spinquant_blocks(folder: Path) -> tuple[Path, Path]:
    """A record from which Q follows: natural-order Hadamard blocks of 32."""
    q = torch.block_diag(*[sylvester(32) / 32**0.5] * 3)
    target = target_of(folder, q, sidecar=False)
    (target / "quant_model_description.json").unlink()
    return configure(target, **transform("R1", "hadamard", head_dim=32)), draft_of(folder)


def _random_matrix(folder: Path) -> tuple[Path, Path]:
    return configure(target_of(folder, None), **transform("R1", "random-matrix")), draft_of(folder)


def _quip(folder: Path) -> tuple[Path, Path]:
    """Transforms inside layers only: the stream is what it was, though norms are folded."""
    target = target_of(folder, None, norm=torch.ones(96))
    inside = transform("v", "hadamard", targets=["re:.*v_proj$"])
    return configure(target, **inside), draft_of(folder)


def _online(folder: Path) -> tuple[Path, Path]:
    """vllm-project/vllm-ascend#8401: heads and Kronecker rotations inside layers."""
    target = target_of(folder, None)
    metadata = {"quarot": {"max_tp_size": 2, "heads_rotation": {"layers": ["o_proj"]}}}
    description = {"version": "1.0.0", "metadata": metadata, "optional": {}}
    write_json(target / "quant_model_description.json", description)
    return target, draft_of(folder)


def _transposed(folder: Path) -> tuple[Path, Path]:
    """intel/auto-round#1884: Q and its transpose mixed up."""
    target = target_of(folder)
    write_sidecar(target, Q.T)
    return target, draft_of(folder)


def _stale(folder: Path) -> tuple[Path, Path]:
    """msmodelslim#125: a rotation that was tuned after it had been exported."""
    target = target_of(folder)
    write_sidecar(target, dense_rotation(96))
    return target, draft_of(folder)


def _sidecar_of_an_unrotated_target(folder: Path) -> tuple[Path, Path]:
    target = target_of(folder, None)
    write_sidecar(target, Q)
    return target, draft_of(folder)


def _sidecar(content: Callable[[Path], object]) -> Callable[[Path], tuple[Path, Path]]:
    def build(folder: Path) -> tuple[Path, Path]:
        target = target_of(folder)
        content(target / "optional/quarot.safetensors")
        return target, draft_of(folder)

    return build


def _nan_in_q() -> torch.Tensor:
    q = Q.clone()
    q[3, 4] = float("nan")
    return q


def _save(q: torch.Tensor) -> Callable[[Path], object]:
    return lambda path: save_file({"global_rotation": q.contiguous()}, path)


def _tied(folder: Path) -> tuple[Path, Path]:
    """spcl/QuaRot#59: a doubly rotated tied export."""
    return target_of(folder, tied=True, broken_tie=True), draft_of(folder)


CASES: Cases = {
    "nothing to correct": (_ready, "ready", "target-not-rotated"),
    "QuIP": (_quip, "ready", "target-not-rotated"),
    "online rotations": (_online, "ready", "target-not-rotated"),
    "rotated, with everything": (_with_plugin, "ready-with-plugin", "rotation-verified"),
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
}


@pytest.mark.parametrize(("build", "verdict", "code"), CASES.values(), ids=CASES)
def test_verdict(tmp_path: Path, build: Builder, verdict: str, code: str) -> None:
    check_verdict(tmp_path, build, verdict, code)
