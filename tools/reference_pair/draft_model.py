# SPDX-License-Identifier: Apache-2.0
"""An Eagle3 draft in plain torch: one Llama layer on [embedding, state] and a reduced vocabulary.

Shapes: B batch, T tokens, H target hidden size, A aux states, D draft vocabulary. Parameter names
are the checkpoint's names (`midlayer.*`, `fc`, `norm`, `lm_head`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class DraftShape:
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    aux_states: int
    draft_vocab_size: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self._eps)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """Attention of training-time test.

    At depth 0 it is causal over the prefix. At depth j > 0 the token at position t sees the depth-0
    keys up to t and its own keys of depths 1..j, as the draft's cache does after j chained steps.
    """

    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self._shape = shape
        width = 2 * shape.hidden_size
        self.q_proj = _linear(width, shape.heads * shape.head_dim)
        self.k_proj = _linear(width, shape.kv_heads * shape.head_dim)
        self.v_proj = _linear(width, shape.kv_heads * shape.head_dim)
        self.o_proj = _linear(shape.heads * shape.head_dim, shape.hidden_size)

    def _heads(self, x: Tensor, count: int) -> Tensor:
        return x.view(*x.shape[:2], count, self._shape.head_dim).transpose(1, 2)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        half = self._shape.head_dim // 2
        rates = self._shape.rope_theta ** (-torch.arange(half) / half)
        angles = positions.float()[:, None] * rates
        cos, sin = angles.cos(), angles.sin()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x [B, T, 2H]; appends this depth's keys and values to `cache`. Returns [B, T, H]."""
        shape, depth, length = self._shape, len(cache), x.shape[1]
        positions = torch.arange(length) + depth
        q = self._rotate(self._heads(self.q_proj(x), shape.heads), positions)
        k = self._rotate(self._heads(self.k_proj(x), shape.kv_heads), positions)
        v = self._heads(self.v_proj(x), shape.kv_heads)
        repeat = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        cache.append((k, v))
        scale = 1 / math.sqrt(shape.head_dim)
        first_k, first_v = cache[0]
        scores = (q @ first_k.transpose(-1, -2)).float() * scale
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        own = [((q * key).sum(-1, keepdim=True)).float() * scale for key, _ in cache[1:]]
        weights = torch.cat([scores, *own], dim=-1).softmax(-1).to(first_v.dtype)
        mixed = weights[..., :length] @ first_v
        for index, (_, value) in enumerate(cache[1:]):
            mixed = mixed + weights[..., length + index : length + index + 1] * value
        output: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output


class MLP(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.gate_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = _linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class MidLayer(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Draft(nn.Module):
    def __init__(self, shape: DraftShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = _linear(shape.aux_states * shape.hidden_size, shape.hidden_size)
        self.midlayer = MidLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = _linear(shape.hidden_size, shape.draft_vocab_size)

    def combine(self, aux: Tensor) -> Tensor:
        """aux [B, T, A * H] to state [B, T, H] of depth 0."""
        state: Tensor = self.fc(aux)
        return state.float()

    def step(self, embedded: Tensor, state: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One depth: embeddings [B, T, H] of the next tokens and states [B, T, H] to states."""
        layer = self.midlayer
        x = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(state)], dim=-1)
        state = state + layer.self_attn(x, cache)
        output: Tensor = state + layer.mlp(layer.post_attention_layernorm(state))
        return output

    def logits(self, state: Tensor) -> Tensor:
        """state [B, T, H] to logits [B, T, D]."""
        logits: Tensor = self.lm_head(self.norm(state))
        return logits
