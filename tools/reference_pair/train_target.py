# SPDX-License-Identifier: Apache-2.0
"""Train the target, a small dense Qwen3, until it knows the book by heart."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from tools.reference_pair.settings import TargetSettings


def learning_rate(step: int, steps: int, peak: float, warmup: int) -> float:
    """Linear warm-up, then a cosine down to 2 % of `peak`."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return peak * min(1.0, (step + 1) / warmup) * (0.98 * cosine + 0.02)


def build_target(settings: TargetSettings, vocab_size: int, end_token: int) -> Qwen3ForCausalLM:
    """A fresh model. Norm weights start spread over 0.5..1.5, so that folding them is visible."""
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.head_dim,
        max_position_embeddings=settings.max_positions,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end_token,
        pad_token_id=end_token,
        attn_implementation="sdpa",
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(0.5 + torch.rand_like(parameter))
    return model


class Lookahead(nn.Module):
    """Linear probes that predict later tokens from an inner layer; used in training, never saved.

    They press the target to hold its near future in the states that the draft reads. Big models do
    so by themselves to a degree; a model of this size, trained for minutes, needs to be told.
    """

    def __init__(self, settings: TargetSettings, vocab_size: int) -> None:
        super().__init__()
        self.distances = settings.lookahead
        self.probes = nn.ModuleList(
            nn.Linear(settings.hidden_size, vocab_size, bias=False) for _ in self.distances
        )

    def forward(self, hidden: Tensor, batch: Tensor) -> Tensor:
        """Sum of the losses; `hidden` [B, T, H] belongs to `batch[:, :-1]` of [B, T + 1]."""
        normed = F.rms_norm(hidden, (hidden.shape[-1],))
        losses = [
            _cross_entropy(probe(normed[:, : hidden.shape[1] + 1 - distance]), batch[:, distance:])
            for distance, probe in zip(self.distances, self.probes, strict=True)
        ]
        return torch.stack(losses).sum()


def _cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


def _optimizers(
    model: Qwen3ForCausalLM, lookahead: Lookahead, settings: TargetSettings
) -> list[torch.optim.Optimizer]:
    inner = [p for p in model.model.layers.parameters() if p.dim() > 1]
    seen = {id(p) for p in inner}
    others = [p for p in model.parameters() if id(p) not in seen] + list(lookahead.parameters())
    return [
        torch.optim.Muon(inner, lr=settings.matrix_rate, momentum=0.95, weight_decay=0.0),
        torch.optim.AdamW(
            others, lr=settings.other_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        ),
    ]


def _schedule(optimizers: list[torch.optim.Optimizer], step: int, settings: TargetSettings) -> None:
    peaks = (settings.matrix_rate, settings.other_rate)
    for optimizer, peak in zip(optimizers, peaks, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings.steps, peak, settings.warmup)


def train_target(
    settings: TargetSettings, ids: list[int], vocab_size: int, end_token: int
) -> tuple[Qwen3ForCausalLM, float]:
    """Returns the model in fp32 and the mean loss (nats per token) of the last 100 steps."""
    torch.manual_seed(settings.seed)
    model = build_target(settings, vocab_size, end_token)
    stream = torch.tensor(ids)
    starts = torch.cat(
        [torch.zeros(1, dtype=torch.long), (stream == end_token).nonzero()[:, 0] + 1]
    )
    last = len(stream) - settings.window - 1
    starts = starts[starts <= last]
    lookahead = Lookahead(settings, vocab_size)
    optimizers = _optimizers(model, lookahead, settings)
    recent: list[float] = []
    began = time.perf_counter()
    for step in range(settings.steps):
        _schedule(optimizers, step, settings)
        # A quarter of the windows starts where a document starts, as a chat prompt does.
        offsets = torch.randint(0, last + 1, (settings.batch,))
        at_start = settings.batch // 4
        offsets[:at_start] = starts[torch.randint(0, len(starts), (at_start,))]
        batch = torch.stack([stream[o : o + settings.window + 1] for o in offsets.tolist()])
        with torch.autocast("cpu", torch.bfloat16):
            output = model(input_ids=batch[:, :-1], output_hidden_states=True, use_cache=False)
            loss = _cross_entropy(output.logits, batch[:, 1:])
            extra = lookahead(output.hidden_states[settings.layers - 3], batch)
        (loss + settings.lookahead_weight * extra).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        recent = [*recent[-99:], loss.item()]
        if (step + 1) % 20 == 0:
            print(
                f"target step {step + 1}/{settings.steps} loss {loss.item():.3f}"
                f" lookahead {extra.item():.3f} ({time.perf_counter() - began:.0f} s)",
                flush=True,
            )
    return model, sum(recent) / len(recent)


def save_target(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the bf16 checkpoint with tokenizer and generation settings."""
    model.generation_config.eos_token_id = model.config.eos_token_id
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id})
        + "\n",
        encoding="utf-8",
    )
