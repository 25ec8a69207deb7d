# SPDX-License-Identifier: Apache-2.0
"""Every object of vLLM and vllm-ascend that this package touches or counts on, in one table.

``register()`` checks the objects that we use or replace against the installed hosts, and tests
check all of them against the wheels of every release in tests/contract/wheels.
``docs/en/hooks.md`` is this table as a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

#: What we do with an object:
#: ``used``: call or read it; ``replaced``: subclass it or put ours in its place;
#: ``assumed``: rely on what the host does there; ``avoided``: a fault, or a correction of the
#: host's own, which must not reach a draft that we correct, and is not missed when it is gone.
Kind = Literal["used", "replaced", "assumed", "avoided"]

#: Oldest and newest release of each host whose objects tests compare with this table.
TESTED_VERSIONS = {"vllm": ("0.18.1", "0.33.0"), "vllm_ascend": ("0.18.0", "0.30.0rc2")}


@dataclass(frozen=True)
class Hook:
    """One object of a host.

    Attributes:
        module: where it is defined.
        name: ``function``, ``VARIABLE``, ``Class`` or ``Class.attribute``.
        kind: what we do with it.
        why: what for.
        parameters: names that its parameter list must begin with; any further one must have a
            default. None: not a function, or its parameters do not matter.
        since: first release that has it; None: all that we support.
        until: first release that no longer has it; None: none yet.
        only_on: ``device_type`` of the one platform on which we touch it; None: every platform.
    """

    module: str
    name: str
    kind: Kind
    why: str
    parameters: tuple[str, ...] | None = None
    since: str | None = None
    until: str | None = None
    only_on: str | None = None

    @property
    def package(self) -> str:
        """The host that it belongs to: ``vllm`` or ``vllm_ascend``."""
        return self.module.partition(".")[0]

    @property
    def label(self) -> str:
        """Its full name."""
        return f"{self.module}.{self.name}"

    def exists_in(self, version: Version) -> bool:
        """True when release ``version`` should have it; a pre-release counts as its release."""
        release = version.release
        return (self.since is None or release >= Version(self.since).release) and (
            self.until is None or release < Version(self.until).release
        )


_REGISTRY = "vllm.model_executor.models.registry"
_LLAMA = "vllm.model_executor.models.llama_eagle3"
_DEEPSEEK = "vllm.model_executor.models.deepseek_eagle3"
_QWEN3 = "vllm.model_executor.models.qwen3_eagle3"
_ASCEND_PROPOSER = "vllm_ascend.spec_decode.llm_base_proposer"
_EXPERTS = "vllm.model_executor.layers.fused_moe"
_TABLE = "vllm.model_executor.layers.vocab_parallel_embedding"

_INIT = ("self", "vllm_config", "prefix")
_STATES = ("self", "hidden_states")
_WEIGHTS = ("self", "weights")
_IDS = ("self", "input_ids")


def _draft_class(module: str, name: str, inner: str, since: str | None = None) -> tuple[Hook, ...]:
    """What we rely on in one Eagle3 draft class of vLLM and its inner model."""

    def hook(
        attribute: str, kind: Kind, why: str, parameters: tuple[str, ...] | None = None
    ) -> Hook:
        return Hook(module, attribute, kind, why, parameters, since)

    return (
        hook(name, "replaced", "subclassed; hosts assert that a draft is one"),
        hook(f"{name}.__init__", "replaced", "decides what is corrected", _INIT),
        hook(f"{name}.combine_hidden_states", "replaced", "un-rotates the aux states", _STATES),
        hook(f"{name}.load_weights", "replaced", "leaves out what is the target's", _WEIGHTS),
        hook(f"{name}.compute_logits", "assumed", "goes through logits_processor", _STATES),
        hook(f"{name}.logits_processor", "replaced", "enters a head of the target's"),
        hook(f"{name}.lm_head", "assumed", "the draft's own head, or the target's"),
        hook(f"{name}.draft_id_to_target_id", "assumed", "offsets of a reduced vocabulary"),
        hook(f"{inner}.embed_input_ids", "replaced", "un-rotates rows looked up", _IDS),
        hook(f"{inner}.embed_tokens", "used", "the draft's own table, or the target's"),
        hook(f"{inner}.fc", "used", "the projection whose loaded weight is verified"),
    )


_DRAFTS = (
    *_draft_class(_LLAMA, "Eagle3LlamaForCausalLM", "LlamaModel"),
    *_draft_class(_DEEPSEEK, "Eagle3DeepseekV2ForCausalLM", "DeepseekV2Eagle3Model"),
    *_draft_class(_QWEN3, "Eagle3Qwen3ForCausalLM", "Qwen3Eagle3Model", since="0.24"),
    Hook(_LLAMA, "LlamaModel.input_norm", "replaced", "a norm over all aux states"),
    Hook(_LLAMA, "LlamaModel.fc_norm", "replaced", "a norm per aux state", since="0.22"),
)

_VLLM = (
    Hook(
        "vllm.model_executor.models", "ModelRegistry", "used", "the one registry of architectures"
    ),
    Hook(_REGISTRY, "_ModelRegistry.models", "used", "which class serves an architecture"),
    Hook(
        _REGISTRY,
        "_ModelRegistry.register_model",
        "replaced",
        "registers our drafts; extended on the instance, to wrap what is registered after us",
        ("self", "model_arch", "model_cls"),
    ),
    Hook(_REGISTRY, "_LazyRegisteredModel.module_name", "used", "the class underneath ours"),
    Hook(_REGISTRY, "_LazyRegisteredModel.class_name", "used", "the class underneath ours"),
    Hook(_REGISTRY, "_RegisteredModel.model_cls", "used", "the class underneath ours"),
    Hook("vllm.platforms", "current_platform", "used", "which host this is"),
    Hook("vllm.config.vllm", "VllmConfig.additional_config", "used", "our settings"),
    Hook("vllm.config.vllm", "VllmConfig.speculative_config", "used", "the draft"),
    Hook("vllm.config.vllm", "VllmConfig.model_config", "used", "the target"),
    Hook("vllm.config.vllm", "VllmConfig.load_config", "used", "how models are loaded"),
    Hook("vllm.config.load", "LoadConfig.download_dir", "used", "where those of a hub are"),
    Hook("vllm.config.speculative", "SpeculativeConfig.draft_model_config", "used", "the draft"),
    Hook("vllm.config.speculative", "SpeculativeConfig.method", "used", "is it Eagle3?"),
    Hook("vllm.config.model", "ModelConfig.model", "used", "folder or hub id"),
    Hook("vllm.config.model", "ModelConfig.revision", "used", "of a hub id"),
    Hook(
        "vllm.model_executor.models.interfaces",
        "SupportsEagleBase.has_own_embed_tokens",
        "assumed",
        "false: the host shares the target's table",
    ),
    Hook(
        "vllm.model_executor.models.interfaces",
        "SupportsEagleBase.has_own_lm_head",
        "assumed",
        "false: the host shares the target's head",
    ),
    Hook(
        "vllm.model_executor.models.utils",
        "process_eagle_weight",
        "assumed",
        "sets these flags from the names of loaded weights",
        ("model", "name"),
    ),
    Hook(
        "vllm.model_executor.layers.logits_processor",
        "LogitsProcessor.forward",
        "replaced",
        "the way into a head for every host and sampler",
        ("self", "lm_head", "hidden_states"),
    ),
    Hook(
        "vllm.model_executor.layers.logits_processor",
        "LogitsProcessor.get_top_tokens",
        "replaced",
        "the same, where only the best token is wanted",
        ("self", "lm_head", "hidden_states"),
    ),
    Hook(
        "vllm.v1.metrics.loggers",
        "StatLoggerBase",
        "used",
        "subclassed: the acceptance guard, which vLLM loads by its entry point",
    ),
    Hook(_TABLE, "VocabParallelEmbedding", "used", "a table whose rows can be gathered directly"),
    Hook(_TABLE, "VocabParallelEmbedding.tp_size", "used", "1: the table is whole"),
    Hook(
        "vllm.model_executor.layers.layernorm",
        "RMSNorm.variance_epsilon",
        "used",
        "for un-rotation and norm in one pass",
    ),
    Hook("vllm.model_executor.layers.layernorm", "RMSNorm.weight", "used", "same"),
    Hook(
        "vllm.v1.spec_decode.llm_base_proposer",
        "SpecDecodeBaseProposer.propose",
        "assumed",
        "calls combine_hidden_states once per step, outside any graph (V1 runner)",
        since="0.20",
    ),
    Hook(
        "vllm.v1.spec_decode.llm_base_proposer",
        "SpecDecodeBaseProposer._maybe_share_embeddings",
        "assumed",
        "shares the target's table (V1 runner)",
        ("self", "target_language_model"),
        since="0.20",
    ),
    Hook(
        "vllm.v1.spec_decode.llm_base_proposer",
        "SpecDecodeBaseProposer._maybe_share_lm_head",
        "assumed",
        "shares the target's head (V1 runner)",
        ("self", "target_language_model"),
        since="0.20",
    ),
    Hook(
        "vllm.v1.spec_decode.eagle",
        "SpecDecodeBaseProposer._maybe_share_lm_head",
        "assumed",
        "the same in older releases",
        ("self", "target_language_model"),
        until="0.20",
    ),
    Hook(
        "vllm.v1.worker.gpu.spec_decode.eagle.utils",
        "load_eagle_model",
        "assumed",
        "loads the draft and shares tables (V2 runner)",
        ("target_model", "vllm_config"),
    ),
)


def _cpu(
    module: str,
    name: str,
    kind: Kind,
    why: str,
    since: str | None = None,
    until: str | None = None,
) -> Hook:
    return Hook(module, name, kind, why, since=since, until=until, only_on="cpu")


_CPU_HOST = (
    _cpu(
        "vllm.transformers_utils.config",
        "_CONFIG_FORMAT_TO_CONFIG_PARSER",
        "replaced",
        "entry 'hf' is extended: msModelSlim checkpoints are detected",
    ),
    _cpu(
        "vllm.transformers_utils.repo_utils",
        "file_or_path_exists",
        "used",
        "detects them on a hub",
    ),
    _cpu(
        "vllm.model_executor.layers.quantization",
        "register_quantization_config",
        "used",
        "registers 'ascend'",
    ),
    _cpu(
        "vllm.model_executor.layers.quantization",
        "QUANTIZATION_METHODS",
        "used",
        "whether somebody has registered it",
    ),
    _cpu(
        "vllm.model_executor.layers.quantization",
        "QuantizationConfig",
        "replaced",
        "subclassed: the scheme of each layer",
    ),
    *(
        _cpu(module, name, "used", "quantised linear layers of msModelSlim checkpoints")
        for module, name in (
            ("vllm", "_custom_ops"),
            ("vllm.config", "get_current_vllm_config_or_none"),
            ("vllm.distributed", "get_tp_group"),
            ("vllm.model_executor.kernels.linear", "init_int8_linear_kernel"),
            ("vllm.model_executor.layers.linear", "LinearBase"),
            ("vllm.model_executor.layers.linear", "LinearMethodBase"),
            ("vllm.model_executor.layers.linear", "RowParallelLinear"),
            ("vllm.model_executor.layers.linear", "UnquantizedLinearMethod"),
            (
                "vllm.model_executor.layers.linear",
                "register_weight_loader_v2_supported_method",
            ),
            (_TABLE, "VocabParallelEmbedding"),
            ("vllm.model_executor.models.utils", "WeightsMapper"),
            ("vllm.model_executor.parameter", "ChannelQuantScaleParameter"),
            ("vllm.model_executor.parameter", "ModelWeightParameter"),
            ("vllm.model_executor.parameter", "PerTensorScaleParameter"),
        )
    ),
    _cpu(_EXPERTS, "FusedMoE", "used", "recognises a layer of experts", until="0.27"),
    _cpu(_EXPERTS, "RoutedExperts", "used", "recognises a layer of experts", since="0.22"),
    *(
        _cpu(f"{_EXPERTS}.{module}", "select_experts", "used", "routing", since, until)
        for module, since, until in (
            ("cpu_fused_moe", None, "0.28"),
            ("experts.cpu_moe", "0.28", "0.30"),
            ("router.cpu_router", "0.30", None),
        )
    ),
    *(
        _cpu(module, name, "used", "quantised experts of msModelSlim checkpoints")
        for module, name in (
            (_EXPERTS, "FusedMoEConfig"),
            (_EXPERTS, "FusedMoEMethodBase"),
            (_EXPERTS, "FusedMoeWeightScaleSupported"),
            (_EXPERTS, "MoEActivation"),
            ("vllm.utils.torch_utils", "direct_register_custom_op"),
        )
    ),
    _cpu(
        "vllm.utils.cpu_triton_utils",
        "sample_recovered_tokens_kernel",
        "avoided",
        "repaired where faulty (vllm-project/vllm#46069)",
        since="0.20",
        until="0.31",
    ),
    _cpu(
        "vllm.utils.cpu_triton_utils",
        "expand_kernel",
        "avoided",
        "repaired where faulty (vllm-project/vllm#55005)",
        since="0.20",
        until="0.31",
    ),
)

_ASCEND = (
    Hook(
        "vllm_ascend.patch.worker.patch_draft_quarot",
        "patch_load_weights",
        "avoided",
        "assigns a folding load_weights to vLLM's class just before the draft is loaded",
        ("target_vllm_config",),
        until="0.27",
    ),
    Hook(
        "vllm_ascend.patch.worker.patch_draft_quarot",
        "make_load_weights",
        "avoided",
        "makes that load_weights",
        until="0.27",
    ),
    Hook(
        "vllm_ascend.models.llama_eagle3",
        "AscendEagle3LlamaForCausalLM.is_quarot_used",
        "avoided",
        "the fold of the registered class; set to false on a draft that we correct",
        since="0.27",
    ),
    Hook(
        "vllm_ascend.models.llama_eagle3",
        "AscendEagle3LlamaForCausalLM.load_weights",
        "avoided",
        "folds while is_quarot_used",
        _WEIGHTS,
        since="0.27",
    ),
    Hook(
        "vllm_ascend.patch.worker.patch_eagle3_init",
        "_patched_eagle3_llama_init",
        "assumed",
        "takes the place of the draft's __init__, which we therefore call, never copy",
        ("self", "vllm_config"),
        since="0.23",
    ),
    Hook(
        "vllm_ascend.models.llama_eagle3_vwn",
        "Eagle3VwnLlamaForCausalLM",
        "replaced",
        "subclassed like vLLM's own draft classes",
        since="0.23",
    ),
    Hook(
        "vllm_ascend.models.llama_eagle3_vwn",
        "Eagle3VwnLlamaForCausalLM.combine_hidden_states",
        "replaced",
        "un-rotates the aux states",
        _STATES,
        since="0.23",
    ),
    Hook(
        _ASCEND_PROPOSER,
        "AscendSpecDecodeBaseProposer._propose",
        "assumed",
        "calls combine_hidden_states before padding and graph",
        since="0.23",
    ),
    Hook(
        _ASCEND_PROPOSER,
        "AscendSpecDecodeBaseProposer._run_merged_draft",
        "assumed",
        "all steps of a proposal, in one graph: enters table and head as we left them",
        since="0.23",
    ),
    Hook(
        "vllm_ascend.worker.model_runner_v1",
        "NPUModelRunner._all_gather_hidden_states_and_aux",
        "assumed",
        "rows that flash-comm split over the ranks are whole before the proposer gets them",
        ("hidden_states",),
        until="0.27",
    ),
    Hook(
        _ASCEND_PROPOSER,
        "AscendSpecDecodeBaseProposer._maybe_share_embeddings",
        "assumed",
        "shares the target's table",
        ("self", "target_language_model"),
        since="0.23",
    ),
    Hook(
        _ASCEND_PROPOSER,
        "AscendSpecDecodeBaseProposer._maybe_share_lm_head",
        "assumed",
        "does not share the target's head with an Eagle3 draft, which keeps uninitialised memory",
        ("self", "model"),
        since="0.23",
    ),
    Hook(
        _ASCEND_PROPOSER,
        "AscendSpecDecodeBaseProposer.compute_draft_token_ids",
        "assumed",
        "enters the head through logits_processor, without compute_logits",
        ("self", "hidden_states"),
        since="0.23",
    ),
    Hook(
        "vllm_ascend.spec_decode.eagle_proposer",
        "SpecDecodeBaseProposer._maybe_share_lm_head",
        "assumed",
        "does not share the target's head with an Eagle3 draft (older releases)",
        ("self", "model"),
        until="0.23",
    ),
)

HOOKS: tuple[Hook, ...] = (*_VLLM, *_DRAFTS, *_CPU_HOST, *_ASCEND)
