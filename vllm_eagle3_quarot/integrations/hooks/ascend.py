# SPDX-License-Identifier: Apache-2.0
"""vllm-ascend: its own fold of the rotation, its draft classes, its proposer."""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.hooks.hook import Hook

_PROPOSER = "vllm_ascend.spec_decode.llm_base_proposer"

_STATES = ("self", "hidden_states")
_WEIGHTS = ("self", "weights")

ASCEND = (
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
        _PROPOSER,
        "AscendSpecDecodeBaseProposer._propose",
        "assumed",
        "calls combine_hidden_states before padding and graph",
        since="0.23",
    ),
    Hook(
        _PROPOSER,
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
        _PROPOSER,
        "AscendSpecDecodeBaseProposer._maybe_share_embeddings",
        "assumed",
        "shares the target's table",
        ("self", "target_language_model"),
        since="0.23",
    ),
    Hook(
        _PROPOSER,
        "AscendSpecDecodeBaseProposer._maybe_share_lm_head",
        "assumed",
        "does not share the target's head with an Eagle3 draft, which keeps uninitialised memory",
        ("self", "model"),
        since="0.23",
    ),
    Hook(
        _PROPOSER,
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
