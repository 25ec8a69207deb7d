# SPDX-License-Identifier: Apache-2.0
"""`quantization="ascend"` on the CPU platform: registration, detection, choice per layer."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.cpu.loading import PACKED, described, quantization
from tests.unit.cpu.stored_experts import LAYER as EXPERTS
from tests.unit.cpu.stored_experts import stored_experts
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu import register_cpu_host
from vllm_eagle3_quarot.integrations.cpu.detection import detect, install_detection
from vllm_eagle3_quarot.integrations.cpu.msmodelslim import MsModelSlimConfig, register_msmodelslim

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 64,
    "max_position_embeddings": 128,
}

W8A8 = {"model.layers.0.mlp.down_proj.weight": "W8A8", "model.norm.weight": "FLOAT"}
FLOAT = {"model.layers.0.mlp.down_proj.weight": "FLOAT"}


def checkpoint(
    folder: Path, types: dict[str, str] | None, *, metadata: object = None, **config: Any
) -> Path:
    """A folder with a configuration and, unless ``types`` is None, a description."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**QWEN3, **config}))
    if types is not None:
        header = {"version": "1.0.0", "model_quant_type": "W8A8", "metadata": metadata or {}}
        (folder / "quant_model_description.json").write_text(json.dumps({**header, **types}))
    return folder


class TestRegistration:
    def test_only_on_the_cpu_platform(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from vllm.platforms import current_platform

        def forbidden() -> None:
            raise AssertionError("acts on a platform that is not the CPU")

        monkeypatch.setattr(type(current_platform), "is_cpu", lambda platform: False)
        for module, name in (("faults", "repair_faults"), ("msmodelslim", "register_msmodelslim")):
            monkeypatch.setattr(f"vllm_eagle3_quarot.integrations.cpu.{module}.{name}", forbidden)
        register_cpu_host()

    def test_somebody_elses_registration_is_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vllm.model_executor.layers import quantization as registry
        from vllm.transformers_utils import config as vllm_config

        theirs = type("Theirs", (MsModelSlimConfig,), {})
        stock = dict(vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER)
        monkeypatch.setattr(registry, "QUANTIZATION_METHODS", ["ascend"])
        monkeypatch.setattr(
            "vllm_eagle3_quarot.integrations.cpu.msmodelslim.QUANTIZATION_METHODS", ["ascend"]
        )
        monkeypatch.setitem(registry._CUSTOMIZED_METHOD_TO_QUANT_CONFIG, "ascend", theirs)
        register_msmodelslim()
        assert registry._CUSTOMIZED_METHOD_TO_QUANT_CONFIG["ascend"] is theirs
        assert stock == vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER

    def test_twice_is_as_once(self) -> None:
        from vllm.model_executor.layers import quantization as registry
        from vllm.transformers_utils import config as vllm_config

        register_cpu_host()
        parser = vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER["hf"]
        register_cpu_host()
        install_detection()
        assert registry.QUANTIZATION_METHODS.count("ascend") == 1
        assert registry.get_quantization_config("ascend") is MsModelSlimConfig
        assert vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER["hf"] is parser

    def test_is_quiet_and_loads_no_runner(self) -> None:
        """In a fresh process, as in every process of a server that needs none of this."""
        script = (
            "import sys\n"
            "from vllm_eagle3_quarot.integrations.cpu import register_cpu_host\n"
            "assert 'torch' not in sys.modules and 'vllm' not in sys.modules\n"
            "import vllm.engine.arg_utils\n"
            "print('---')\n"
            "register_cpu_host()\n"
            "for name in ('vllm._C', 'vllm._custom_ops', 'vllm.model_executor.layers.linear',\n"
            "             'vllm.v1.worker.gpu_model_runner', 'vllm.v1.worker.cpu_model_runner'):\n"
            "    assert name not in sys.modules, name\n"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout.partition("---\n")[2] == ""


class TestDetection:
    def test_quantised_checkpoint(self, tmp_path: Path) -> None:
        assert detect(checkpoint(tmp_path, W8A8), None, None) == {
            "quant_method": "ascend",
            "checkpoint": str(tmp_path),
        }

    @pytest.mark.parametrize("types", [None, FLOAT])
    def test_floating_point_checkpoint_is_vllms_alone(
        self, tmp_path: Path, types: dict[str, str] | None
    ) -> None:
        assert detect(checkpoint(tmp_path, types), None, None) is None

    def test_floating_point_with_online_rotations_is_not(self, tmp_path: Path) -> None:
        folder = checkpoint(tmp_path, FLOAT, metadata={"quarot": {"heads_rotation": {}}})
        assert detect(folder, None, None) is not None

    def test_another_quantisation_has_precedence(self, tmp_path: Path) -> None:
        folder = checkpoint(tmp_path, W8A8)
        assert detect(folder, None, {"quant_method": "compressed-tensors"}) is None
        assert detect(folder, None, {"quant_method": "ascend", "x": 1}) == {
            "quant_method": "ascend",
            "x": 1,
            "checkpoint": str(tmp_path),
        }

    def test_broken_description_is_named(self, tmp_path: Path) -> None:
        checkpoint(tmp_path, W8A8)
        (tmp_path / "quant_model_description.json").write_text("{")
        with pytest.raises(CheckpointError, match=r"quant_model_description\.json"):
            detect(tmp_path, None, None)

    @pytest.mark.parametrize("flag", [None, "ascend"])
    def test_vllm_takes_it(self, tmp_path: Path, flag: str | None) -> None:
        register_cpu_host()
        vllm_config = engine_config(checkpoint(tmp_path, W8A8), quantization=flag)
        assert vllm_config.model_config.quantization == "ascend"
        assert vllm_config.quant_config.tensor_types == W8A8

    def test_vllm_loads_other_models_as_before(self, tmp_path: Path) -> None:
        register_cpu_host()
        vllm_config = engine_config(checkpoint(tmp_path, None))
        assert vllm_config.model_config.quantization is None
        assert vllm_config.quant_config is None
        assert not hasattr(vllm_config.model_config.hf_config, "quantization_config")

    def test_flag_on_a_floating_point_export(self, tmp_path: Path) -> None:
        register_cpu_host()
        vllm_config = engine_config(checkpoint(tmp_path, FLOAT), quantization="ascend")
        assert vllm_config.quant_config.tensor_types == FLOAT

    def test_flag_on_another_checkpoint(self, tmp_path: Path) -> None:
        register_cpu_host()
        with pytest.raises(CheckpointError, match=r"has no quant_model_description\.json"):
            engine_config(checkpoint(tmp_path, None), quantization="ascend")

    @pytest.mark.parametrize(
        ("types", "metadata", "message"),
        [
            ({"a.weight": "W4A8_DYNAMIC"}, None, "'a.weight' has the quantisation type 'W4A8_DYN"),
            (W8A8, {"quarot": {"heads_rotation": {}}}, "rotates activations inside its layers"),
        ],
    )
    def test_what_the_platform_cannot_run_ends_before_an_engine_starts(
        self, tmp_path: Path, types: dict[str, str], metadata: object, message: str
    ) -> None:
        register_cpu_host()
        with pytest.raises(CheckpointError, match=message) as error:
            engine_config(checkpoint(tmp_path, types, metadata=metadata))
        assert str(tmp_path / "quant_model_description.json") in str(error.value)

    def test_draft_of_a_quantised_target_is_not_quantised(self, tmp_path: Path) -> None:
        register_cpu_host()
        target = checkpoint(tmp_path / "target", W8A8)
        draft = checkpoint(
            tmp_path / "draft",
            None,
            architectures=["LlamaForCausalLMEagle3"],
            model_type="llama",
            draft_vocab_size=64,
        )
        vllm_config = engine_config(
            target,
            speculative_config={
                "method": "eagle3",
                "model": str(draft),
                "num_speculative_tokens": 2,
            },
        )
        draft_config = vllm_config.speculative_config.draft_model_config
        assert vllm_config.model_config.quantization == "ascend"
        assert draft_config.quantization is None
        assert getattr(draft_config.hf_config, "quantization_config", None) is None


def engine_config(folder: Path, **options: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(model=str(folder), skip_tokenizer_init=True, max_model_len=64, **options)
    return arguments.create_engine_config()


@pytest.mark.usefixtures("vllm_layers")
class TestLayers:
    def linear(self, types: dict[str, str], name: str, bias: bool = False) -> Any:
        from vllm.model_executor.layers.linear import MergedColumnParallelLinear, ReplicatedLinear

        kind: Any = partial(ReplicatedLinear, 64, 32)
        if name.endswith("gate_up_proj"):
            kind = partial(MergedColumnParallelLinear, 64, [32, 32])
        return kind(quant_config=quantization(types), prefix=name, bias=bias)

    @pytest.mark.parametrize(
        ("kind", "method"),
        [
            ("FLOAT", "UnquantizedLinearMethod"),
            ("W8A8", "W8A8StaticLinearMethod"),
            ("W8A8_DYNAMIC", "W8A8DynamicLinearMethod"),
        ],
    )
    def test_method_by_type(self, kind: str, method: str) -> None:
        types = {f"l.{part}_proj.weight": kind for part in ("gate", "up")}
        assert type(self.linear(types, "l.gate_up_proj").quant_method).__name__ == method

    def test_types_differ_by_layer(self) -> None:
        types = {"a.fc.weight": "FLOAT", "b.fc.weight": "W8A8"}
        names = {type(self.linear(types, f"{name}.fc").quant_method).__name__ for name in "ab"}
        assert names == {"UnquantizedLinearMethod", "W8A8StaticLinearMethod"}

    def test_mixed_shards(self) -> None:
        types = {"l.gate_proj.weight": "W8A8", "l.up_proj.weight": "FLOAT"}
        with pytest.raises(CheckpointError, match=r"l\.gate_proj: W8A8, l\.up_proj: FLOAT"):
            self.linear(types, "l.gate_up_proj")

    @pytest.mark.parametrize("kind", ["FLOAT", "W8A8_DYNAMIC"])
    @pytest.mark.parametrize("stored", [True, False])
    def test_bias_of_one_side_only(self, kind: str, stored: bool) -> None:
        types = {"fc.weight": kind} | ({"fc.bias": "FLOAT"} if stored else {})
        with pytest.raises(CheckpointError, match=r"tensor 'fc\.bias'"):
            self.linear(types, "fc", bias=not stored)
        self.linear(types, "fc", bias=stored)

    def test_static_layers_keep_their_bias_elsewhere(self) -> None:
        self.linear({"fc.weight": "W8A8", "fc.bias": "FLOAT"}, "fc", bias=False)

    @pytest.mark.parametrize("name", ["model.embed_tokens", "lm_head"])
    def test_tables_stay_float(self, name: str) -> None:
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        table = partial(ParallelLMHead, 64, 32, prefix=name)
        table(quant_config=quantization({f"{name}.weight": "FLOAT"}))
        table(quant_config=quantization({}))  # tied: no tensor of its own
        with pytest.raises(CheckpointError, match=f"'{name}.weight' has the quantisation type"):
            table(quant_config=quantization({f"{name}.weight": "W8A8_DYNAMIC"}))

    def experts(self, kind: str, **options: Any) -> Any:
        from vllm.model_executor.layers.fused_moe import FusedMoE

        stored = described(stored_experts(2, 32, 32).layers())
        types = {name: kind for name in stored if kind != "FLOAT" or name.endswith(".weight")}
        return FusedMoE(2, 1, 32, 32, prefix=EXPERTS, quant_config=quantization(types), **options)

    @pytest.mark.parametrize(
        ("kind", "method"),
        [("FLOAT", "UnquantizedFusedMoEMethod"), ("W8A8_DYNAMIC", "W8A8DynamicMoEMethod")],
    )
    def test_experts_by_type(self, kind: str, method: str) -> None:
        assert type(self.experts(kind).quant_method).__name__ == method

    def test_static_experts(self) -> None:
        with pytest.raises(CheckpointError, match=f"'{EXPERTS}.*'W8A8', which experts cannot have"):
            self.experts("W8A8")

    @pytest.mark.parametrize(
        ("options", "what"),
        [
            ({"activation": "gelu"}, "the activation gelu"),
            ({"has_bias": True}, "biases"),
            ({"apply_router_weight_on_input": True}, "router weights on their input"),
            ({"expert_mapping": []}, "a loader of their own"),
        ],
    )
    def test_experts_of_another_kind(self, options: dict[str, Any], what: str) -> None:
        with pytest.raises(CheckpointError, match=f"experts of '{EXPERTS}' have {what}, which"):
            self.experts("W8A8_DYNAMIC", **options)

    def test_other_layers_have_none(self) -> None:
        assert quantization({}).get_quant_method(torch.nn.Identity(), "attn") is None

    def test_names_follow_the_models_mapper(self) -> None:
        from vllm.model_executor.models.utils import WeightsMapper

        config = quantization({"model.language_model.a.weight": "W8A8"})
        config.apply_vllm_mapper(
            WeightsMapper(orig_to_new_prefix={"model.language_model.": "language_model.model."})
        )
        assert config.tensor_types == {"language_model.model.a.weight": "W8A8"}

    def test_layer_before_the_checkpoint_is_known(self) -> None:
        config = MsModelSlimConfig()
        config.packed_modules_mapping = PACKED
        from vllm.model_executor.layers.linear import ReplicatedLinear

        with pytest.raises(CheckpointError, match="before vLLM said which checkpoint"):
            ReplicatedLinear(8, 8, quant_config=config, prefix="fc")

    def test_unread_tensors_are_dropped(self) -> None:
        mapper = quantization({}).get_cache_scale_mapper()
        names = ["rot.weight", "model.rot.weight", "model.norm.weight"]
        kept = mapper.apply((name, torch.zeros(1)) for name in names)
        assert [name for name, _ in kept] == names[1:]
