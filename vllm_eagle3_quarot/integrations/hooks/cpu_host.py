# SPDX-License-Identifier: Apache-2.0
"""What `integrations/cpu` needs on vLLM's CPU platform, and only there."""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.hooks.hook import Hook, Kind

_EXPERTS = "vllm.model_executor.layers.fused_moe"
_TABLE = "vllm.model_executor.layers.vocab_parallel_embedding"


def _cpu(
    module: str,
    name: str,
    kind: Kind,
    why: str,
    since: str | None = None,
    until: str | None = None,
) -> Hook:
    return Hook(module, name, kind, why, since=since, until=until, only_on="cpu")


CPU_HOST = (
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
