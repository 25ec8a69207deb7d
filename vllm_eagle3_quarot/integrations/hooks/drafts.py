# SPDX-License-Identifier: Apache-2.0
"""vLLM's Eagle3 draft classes."""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.hooks.hook import Hook, Kind

_LLAMA = "vllm.model_executor.models.llama_eagle3"
_DEEPSEEK = "vllm.model_executor.models.deepseek_eagle3"
_QWEN3 = "vllm.model_executor.models.qwen3_eagle3"

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


DRAFTS = (
    *_draft_class(_LLAMA, "Eagle3LlamaForCausalLM", "LlamaModel"),
    *_draft_class(_DEEPSEEK, "Eagle3DeepseekV2ForCausalLM", "DeepseekV2Eagle3Model"),
    *_draft_class(_QWEN3, "Eagle3Qwen3ForCausalLM", "Qwen3Eagle3Model", since="0.24"),
    Hook(_LLAMA, "LlamaModel.input_norm", "replaced", "a norm over all aux states"),
    Hook(_LLAMA, "LlamaModel.fc_norm", "replaced", "a norm per aux state", since="0.22"),
)
