# SPDX-License-Identifier: Apache-2.0
"""Exact tensor names, as the model families write them.

A search for a part of a name is how a vision patch embedding gets mistaken for the token table
(vllm-project/vllm-ascend#8765), so a name is either in a list below or unknown.
"""

from __future__ import annotations

#: Token embedding ``[V, H]`` of a target, most common first.
TARGET_EMBEDDING = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",  # Qwen3-VL
    "language_model.model.embed_tokens.weight",  # InternVL, Kimi-K2.5
    "embed.weight",  # DeepSeek-V4
)

#: RMSNorm scale ``[H]`` between a target's last layer and its head.
TARGET_FINAL_NORM = (
    "model.norm.weight",
    "model.language_model.norm.weight",
    "language_model.model.norm.weight",
    "norm.weight",
)

#: Head ``[V, H]`` of a target; tied targets may have none.
TARGET_HEAD = (
    "lm_head.weight",
    "language_model.lm_head.weight",
    "head.weight",
)

#: ``Qᵀ diag(g) Q`` ``[H, H]`` that GLM-5 style exports keep for heads fed by the post-norm state.
ROTATED_NORM = ("rot.weight",)
