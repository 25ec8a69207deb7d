# SPDX-License-Identifier: Apache-2.0
"""The rest of vLLM that takes part on every platform: registry, configuration, layers, runners."""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.hooks.hook import Hook

_REGISTRY = "vllm.model_executor.models.registry"
_TABLE = "vllm.model_executor.layers.vocab_parallel_embedding"

ENGINE = (
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
