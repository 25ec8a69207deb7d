# SPDX-License-Identifier: Apache-2.0
"""A rotated model equals the real tool's bit for bit; what has no rule is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from tests.support import reference_pair as pair
from tests.support.rotations import REAL
from tools.msmodelslim_rotations.tiny_mixture import write_tiny_mixture
from vllm_eagle3_quarot.checkpoint.description import QuantDescription
from vllm_eagle3_quarot.cli.app import app
from vllm_eagle3_quarot.conversion.rotate import plan_rotation, rotate_model
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.errors import CheckpointError, QuaRotError, UnsupportedPairError
from vllm_eagle3_quarot.rotation import Rotation

EXPORTS: dict[str, dict[str, str]] = json.loads((REAL / "exports.json").read_text())["sha256"]
QUANTISED = pair.PAIR / "target-w8a8-quarot"


def _digests(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, value in load_file(path).items():
            data = value.contiguous().view(torch.uint8).numpy().tobytes()
            digests[name] = hashlib.sha256(data).hexdigest()[:16]
    return digests


@pytest.mark.parametrize(("case", "block"), [("target", None), ("target, blocks of 32", 32)])
def test_dense_model_equals_the_tools(tmp_path: Path, case: str, block: int | None) -> None:
    rotate_model(plan_rotation(pair.FLOAT_TARGET, block), tmp_path / "out")
    assert _digests(tmp_path / "out") == EXPORTS[case]


def test_mixture_equals_the_tools(tmp_path: Path) -> None:
    model = write_tiny_mixture(pair.FLOAT_TARGET, tmp_path / "model")
    rotate_model(plan_rotation(model), tmp_path / "out")
    assert _digests(tmp_path / "out") == EXPORTS["mixture"]


def test_layout_is_the_tools(tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ["rotate", "--model-path", str(pair.FLOAT_TARGET), "--output-dir", str(output)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["tensors"] == 91
    names = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    theirs = {str(path.relative_to(QUANTISED)) for path in QUANTISED.rglob("*") if path.is_file()}
    assert names == theirs - {"Qwen3-8B_best_practice.yaml"}
    sidecar = "optional/quarot.safetensors"
    for name, value in load_file(QUANTISED / sidecar).items():
        assert torch.equal(load_file(output / sidecar)[name], value)
    description = QuantDescription.from_folder(output)
    assert description is not None
    assert description.rotation_pointer == sidecar
    assert description.tensor_types.keys() == _digests(output).keys()
    index = json.loads((output / "quant_model_weights.safetensors.index.json").read_text())
    total = sum(
        value.nbytes for value in load_file(next(output.glob("quant*.safetensors"))).values()
    )
    assert index["metadata"]["total_size"] == total
    diagnosis = diagnose(str(output), str(pair.DRAFT), str(pair.FLOAT_TARGET))
    assert diagnosis.verdict == "ready-with-plugin"
    assert CliRunner().invoke(app, arguments).exit_code == 2
    assert CliRunner().invoke(app, [*arguments, "--overwrite", "--seed", "7"]).exit_code == 0
    assert (
        Rotation.from_checkpoint(output).fingerprint
        != Rotation.from_checkpoint(QUANTISED).fingerprint
    )


def test_logits_stay_what_they_were(tmp_path: Path) -> None:
    """One layer by hand, in fp32: attention without positions, so that U has to cancel."""
    model = _small(tmp_path / "model", _linear_model())
    rotate_model(plan_rotation(model), tmp_path / "out")
    before = load_file(model / "model.safetensors")
    after = load_file(next((tmp_path / "out").glob("quant*.safetensors")))
    torch.testing.assert_close(_logits(after), _logits(before), rtol=0, atol=2e-4)


def _linear_model() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": weight(20, 96),
        "model.norm.weight": 0.5 + torch.rand(96, generator=generator),
        "lm_head.weight": weight(20, 96),
        layer + "input_layernorm.weight": 0.5 + torch.rand(96, generator=generator),
        layer + "post_attention_layernorm.weight": 0.5 + torch.rand(96, generator=generator),
        layer + "self_attn.q_proj.weight": weight(64, 96),
        layer + "self_attn.k_proj.weight": weight(64, 96),
        layer + "self_attn.v_proj.weight": weight(64, 96),
        layer + "self_attn.v_proj.bias": weight(64),
        layer + "self_attn.o_proj.weight": weight(96, 64),
        layer + "self_attn.o_proj.bias": weight(96),
        layer + "mlp.gate_proj.weight": weight(40, 96),
        layer + "mlp.up_proj.weight": weight(40, 96),
        layer + "mlp.down_proj.weight": weight(96, 40),
    }


def _small(folder: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Path:
    folder.mkdir()
    save_file({n: v.contiguous() for n, v in tensors.items()}, folder / "model.safetensors")
    document = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 96,
        "num_attention_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 1,
        "vocab_size": 20,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(document))
    return folder


def _logits(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    layer = {n.removeprefix("model.layers.0."): v.double() for n, v in tensors.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * x.square().mean(-1, keepdim=True).rsqrt() * layer[name]

    h = layer["model.embed_tokens.weight"][:7]
    x = norm(h, "input_layernorm.weight")
    q, k = (x @ layer[f"self_attn.{name}_proj.weight"].T for name in "qk")
    v = x @ layer["self_attn.v_proj.weight"].T + layer["self_attn.v_proj.bias"]
    heads = [
        torch.softmax(q[:, part] @ k[:, part].T, -1) @ v[:, part]
        for part in (slice(0, 32), slice(32, 64))
    ]
    h = h + torch.cat(heads, 1) @ layer["self_attn.o_proj.weight"].T
    h = h + layer["self_attn.o_proj.bias"]
    x = norm(h, "post_attention_layernorm.weight")
    gate, up = (x @ layer[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    h = h + (torch.nn.functional.silu(gate) * up) @ layer["mlp.down_proj.weight"].T
    return norm(h, "model.norm.weight") @ layer["lm_head.weight"].T


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "no rules for 'GemmaForCausalLM'"),
        ({"architectures": None}, "no rules for None"),
        ({"tie_word_embeddings": True}, "tied"),
        ({"quantization_config": {}}, "quantised"),
        ({"hidden_size": "96"}, "'hidden_size' is '96'"),
        ({"num_hidden_layers": 2}, "tensors are missing"),
        ({"head_dim": 24}, "does not fit"),
    ],
)
def test_what_has_no_rule_is_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    model = _small(tmp_path / "model", _linear_model(), **config)
    with pytest.raises(QuaRotError, match=message):
        plan_rotation(model)


def test_unknown_and_quantised_tensors_are_refused(tmp_path: Path) -> None:
    tensors = _linear_model()
    more = {**tensors, "model.layers.0.mlp.shared_expert.weight": torch.zeros(1)}
    with pytest.raises(UnsupportedPairError, match="unknown"):
        plan_rotation(_small(tmp_path / "a", more))
    name = "model.layers.0.mlp.up_proj.weight"
    narrow = {**tensors, name: tensors[name].to(torch.int8)}
    with pytest.raises(UnsupportedPairError, match="quantised"):
        plan_rotation(_small(tmp_path / "b", narrow))


def test_place_inside_the_model_is_refused(tmp_path: Path) -> None:
    model = _small(tmp_path / "model", _linear_model())
    with pytest.raises(CheckpointError, match="inside the model's own folder"):
        rotate_model(plan_rotation(model), model / "out")
    shutil.rmtree(model)
