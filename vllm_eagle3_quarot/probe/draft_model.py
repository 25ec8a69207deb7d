# SPDX-License-Identifier: Apache-2.0
"""An Eagle3 draft that runs: its first proposal at every position, in plain PyTorch.

The computation is that of vLLM's ``Eagle3LlamaForCausalLM`` (Llama and Qwen3 layers, all variants
of norms)::

    state_t = fc(norms(aux_t))
    layer 0 reads [input_layernorm(E[token_{t+1}]), hidden_norm(state_t)]

and the head's answer at ``t`` is the proposal for ``token_{t+2}``. Shapes: T tokens, H the draft's
hidden size, D words of its head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, HEAD, OFFSETS, PROJECTION, DraftFacts
from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE
from vllm_eagle3_quarot.errors import ProbeError
from vllm_eagle3_quarot.probe.transformers_library import imported_transformers
from vllm_eagle3_quarot.probe.weights import draft_weights

#: Prefixes of the same decoder layer in the three families of files.
LAYER_PREFIX = "layers."
FIRST_LAYER = "midlayer."


class DraftModel:
    """A draft in memory, fp32.

    Raises:
        ProbeError: its layers are of a kind that is not run here.
        CheckpointError: a file is broken.
    """

    def __init__(self, facts: DraftFacts, aux_states: int) -> None:
        self._facts = facts
        self._aux_states = aux_states
        config = facts.config
        eagle = _section(config, "eagle_config", facts.folder)
        self._norm_before_fc = bool(
            eagle.get("norm_before_fc", config.get("norm_before_fc", False))
        )
        self._fc_norm = config.get("fc_norm", False) is True
        self._norm_before_residual = config.get("norm_before_residual", False) is True
        self._eps = _number(config, "rms_norm_eps", 1e-6, facts.folder)
        self._weights = {_short(name): value for name, value in draft_weights(facts).items()}
        self._layers = self._count_layers()
        self._heads = int(_number(config, "num_attention_heads", 0, facts.folder))
        width = self._weight("layers.0.self_attn.q_proj.weight").shape[0]
        if not 1 <= self._heads <= width:
            raise ProbeError(f"{facts.folder}: {width} channels for {self._heads} attention heads")
        self._head_dim = width // self._heads
        self._rotary = _rotary(config, self._head_dim, facts.folder)

    def own_embedding(self) -> torch.Tensor | None:
        """The draft's own table, fp32 ``[V, H]``."""
        return self._weights.get(EMBEDDING)

    def own_head(self) -> torch.Tensor | None:
        """The draft's own head, fp32 ``[D, H]``."""
        return self._weights.get(HEAD)

    def words(self, ids: torch.Tensor) -> torch.Tensor:
        """Target ids of the draft's ids."""
        offsets = self._weights.get(OFFSETS)
        return ids if offsets is None else ids + offsets.long()[ids]

    @torch.no_grad()
    def step(self, embedded: torch.Tensor, aux: torch.Tensor) -> torch.Tensor:
        """What the head sees, ``[T, H]``, of embeddings ``[T, H]`` and aux states ``[T, A·H]``."""
        state = self._combined(aux)
        for layer in range(self._layers):
            name = f"{LAYER_PREFIX}{layer}."
            before = self._norm(state, name + "hidden_norm.weight") if layer == 0 else None
            if before is None:
                read = self._norm(state, name + "input_layernorm.weight")
            else:
                state = before if self._norm_before_residual else state
                words = self._norm(embedded, name + "input_layernorm.weight")
                read = torch.cat([words, before], dim=-1)
            state = state + self._attention(read, name + "self_attn.")
            read = self._norm(state, name + "post_attention_layernorm.weight")
            state = state + self._mlp(read, name + "mlp.")
        return self._norm(state, "norm.weight")

    def _combined(self, aux: torch.Tensor) -> torch.Tensor:
        if self._aux_states == 0:
            return aux
        if self._norm_before_fc:
            aux = self._norm(aux, "input_norm.weight")
        if self._fc_norm:
            parts = aux.chunk(self._aux_states, dim=-1)
            names = [f"fc_norm.{index}.weight" for index in range(self._aux_states)]
            aux = torch.cat([self._norm(*pair) for pair in zip(parts, names, strict=True)], dim=-1)
        return self._linear(aux, PROJECTION.removesuffix(".weight"))

    def _attention(self, x: torch.Tensor, name: str) -> torch.Tensor:
        q, k, v = (
            self._linear(x, f"{name}{part}_proj").unflatten(-1, (-1, self._head_dim))
            for part in "qkv"
        )
        if f"{name}q_norm.weight" in self._weights:
            q = self._norm(q, f"{name}q_norm.weight")
            k = self._norm(k, f"{name}k_norm.weight")
        q, k, v = (part.transpose(0, 1) for part in (q, k, v))  # [heads, T, head_dim]
        cos, sin = self._rotary(q[None], torch.arange(len(x))[None])
        q, k = (part * cos[0] + _half_turned(part) * sin[0] for part in (q, k))
        if q.shape[0] % k.shape[0]:
            raise ProbeError(f"{self._facts.folder}: {q.shape[0]} heads on {k.shape[0]}")
        repeat = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=1 / math.sqrt(self._head_dim)
        )
        return self._linear(mixed.transpose(0, 1).flatten(1), f"{name}o_proj")

    def _mlp(self, x: torch.Tensor, name: str) -> torch.Tensor:
        gate, up = self._linear(x, f"{name}gate_proj"), self._linear(x, f"{name}up_proj")
        return self._linear(F.silu(gate) * up, f"{name}down_proj")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._weight(f"{name}.weight"), self._weights.get(f"{name}.bias")
        if weight.dim() != 2 or weight.shape[1] != x.shape[-1]:
            raise ProbeError(
                f"{self._facts.folder}: '{name}.weight' {tuple(weight.shape)} was expected to read "
                f"{x.shape[-1]} channels"
            )
        return F.linear(x, weight, bias)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self._weight(name)
        if weight.shape != x.shape[-1:]:
            raise ProbeError(
                f"{self._facts.folder}: '{name}' {tuple(weight.shape)} was expected to have "
                f"{x.shape[-1]} channels"
            )
        return F.rms_norm(x, weight.shape, weight, self._eps)

    def _weight(self, name: str) -> torch.Tensor:
        try:
            return self._weights[name]
        except KeyError:
            seen = ", ".join(sorted(self._weights)[:6])
            raise ProbeError(
                f"{self._facts.folder}: no '{name}'; a probe runs drafts of Llama and Qwen3 layers "
                f"(tensors seen: {seen} ...)"
            ) from None

    def _count_layers(self) -> int:
        numbers = [name.split(".")[1] for name in self._weights if name.startswith(LAYER_PREFIX)]
        return 1 + max((int(number) for number in numbers if number.isdigit()), default=0)


def _short(name: str) -> str:
    """vLLM's name of a tensor, without the model's prefix."""
    name = name.removeprefix("model.")
    return f"{LAYER_PREFIX}0.{name[len(FIRST_LAYER) :]}" if name.startswith(FIRST_LAYER) else name


def _half_turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def _rotary(config: Mapping[str, Any], head_dim: int, folder: Path) -> Any:
    """transformers' rotary embedding, which knows every way of scaling it."""
    transformers = imported_transformers()
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    keys = ("max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters")
    chosen = {key: config[key] for key in keys if config.get(key) is not None}
    sizes = {"hidden_size": head_dim, "num_attention_heads": 1, "head_dim": head_dim}
    try:
        return LlamaRotaryEmbedding(config=transformers.LlamaConfig(**chosen, **sizes))
    # As for the target: a configuration from outside, and a library that takes it apart.
    except Exception as error:
        raise ProbeError(
            f"{folder / CONFIG_FILE}: no rotary embedding can be made of {chosen} "
            f"({type(error).__name__}: {error})"
        ) from error


def _section(config: Mapping[str, Any], key: str, folder: Path) -> Mapping[str, object]:
    return as_object(config.get(key) or {}, folder / CONFIG_FILE, key)


def _number(config: Mapping[str, Any], key: str, otherwise: float, folder: Path) -> float:
    value = config.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProbeError(f"{folder / CONFIG_FILE}: '{key}' is {value!r}, not a number")
    return value
