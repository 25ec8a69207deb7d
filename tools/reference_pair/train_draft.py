# SPDX-License-Identifier: Apache-2.0
"""Train the Eagle3 draft by training-time test on the target's own text, and save it for vLLM."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from tools.reference_pair.draft_model import Draft, DraftShape
from tools.reference_pair.settings import DraftSettings, TargetSettings
from tools.reference_pair.train_target import learning_rate


@dataclass(frozen=True)
class TargetView:
    """What the draft is shown of the target for rows of token ids [R, T].

    `aux` is [R, T, A * H] and `final` (the state after the last norm) [R, T, H], both bf16. The
    logits are recomputed from `final`: kept, they would be ten times as large.
    """

    tokens: Tensor
    aux: Tensor
    final: Tensor


@torch.no_grad()
def look_at_target(
    target: Qwen3ForCausalLM, tokens: Tensor, aux_layers: tuple[int, ...], rows: int = 32
) -> TargetView:
    aux, final = [], []
    for part in tokens.split(rows):
        output = target.model(input_ids=part, output_hidden_states=True, use_cache=False)
        # hidden_states[L] is the residual stream after L layers; only the last one is normed.
        aux.append(torch.cat([output.hidden_states[layer] for layer in aux_layers], dim=-1))
        final.append(output.last_hidden_state)
    return TargetView(tokens, torch.cat(aux), torch.cat(final))


def draft_vocabulary(tokens: Tensor, vocab_size: int, size: int) -> Tensor:
    """The `size` most frequent token ids of `tokens`, ascending."""
    counts = torch.bincount(tokens.flatten(), minlength=vocab_size)
    frequent = counts.argsort(descending=True, stable=True)[:size]
    return frequent.sort().values


def train_draft(
    settings: DraftSettings,
    target_settings: TargetSettings,
    target: Qwen3ForCausalLM,
    tokens: Tensor,
) -> tuple[Draft, Tensor]:
    """Train on rows of target text `[R, T]`. Returns the draft (fp32) and its vocabulary `[D]`."""
    torch.manual_seed(settings.seed)
    view = look_at_target(target, tokens, target_settings.aux_layers)
    vocabulary = draft_vocabulary(tokens, target.config.vocab_size, settings.vocab_size)
    draft = Draft(draft_shape(settings, target_settings))
    head, embedding = target.lm_head.weight, target.model.embed_tokens
    with torch.no_grad():
        draft.lm_head.weight.copy_(head[vocabulary])
    inner = [p for p in draft.midlayer.parameters() if p.dim() > 1] + [draft.fc.weight]
    seen = {id(p) for p in inner}
    others = [p for p in draft.parameters() if id(p) not in seen]
    rates = (settings.matrix_rate, settings.other_rate)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(inner, lr=rates[0], momentum=0.95, weight_decay=0.0),
        torch.optim.AdamW(others, lr=rates[1], betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]
    length = tokens.shape[1] - settings.depth - 1
    hits, seen_steps, began = [0.0] * settings.depth, 0, time.perf_counter()
    for step in range(settings.steps):
        for optimizer, peak in zip(optimizers, rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, settings.steps, peak, settings.warmup)
        rows = torch.randint(0, len(tokens), (settings.batch,))
        with torch.no_grad():
            embedded = embedding(view.tokens[rows])
            wanted = (view.final[rows] @ head.T)[..., vocabulary].float().softmax(-1)
        loss = torch.zeros(())
        with torch.autocast("cpu", torch.bfloat16):
            state = draft.combine(view.aux[rows, :length])
            cache: list[tuple[Tensor, Tensor]] = []
            for depth in range(settings.depth):
                ahead = slice(1 + depth, 1 + depth + length)
                state = draft.step(embedded[:, ahead], state, cache)
                scores = draft.logits(state).float()
                goal = wanted[:, ahead]
                loss = loss - 0.8**depth * (goal * scores.log_softmax(-1)).sum(-1).mean()
                hits[depth] += (scores.argmax(-1) == goal.argmax(-1)).float().mean().item()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        seen_steps += 1
        if (step + 1) % 20 == 0:
            shares = " ".join(f"{hit / seen_steps:.3f}" for hit in hits)
            print(
                f"draft step {step + 1}/{settings.steps} loss {loss.item():.3f} top-1 {shares}"
                f" ({time.perf_counter() - began:.0f} s)",
                flush=True,
            )
            hits, seen_steps = [0.0] * settings.depth, 0
    return draft, vocabulary


def draft_shape(settings: DraftSettings, target: TargetSettings) -> DraftShape:
    return DraftShape(
        hidden_size=target.hidden_size,
        intermediate_size=settings.intermediate_size,
        heads=target.heads,
        kv_heads=target.kv_heads,
        head_dim=target.head_dim,
        aux_states=len(target.aux_layers),
        draft_vocab_size=settings.vocab_size,
    )


def save_draft(draft: Draft, vocabulary: Tensor, target: Qwen3ForCausalLM, folder: Path) -> None:
    """Write the checkpoint that vLLM loads as `LlamaForCausalLMEagle3`.

    `d2t[i]` is the offset from draft token i to its target token, `t2d` marks the target tokens
    that the draft can produce.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocab_size = target.config.vocab_size
    tensors = {
        name: value.detach().to(torch.bfloat16).contiguous()
        for name, value in draft.state_dict().items()
    }
    tensors["embed_tokens.weight"] = (
        target.model.embed_tokens.weight.detach().to(torch.bfloat16).clone()
    )
    tensors["d2t"] = vocabulary - torch.arange(len(vocabulary))
    tensors["t2d"] = torch.zeros(vocab_size, dtype=torch.bool).index_fill(0, vocabulary, True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shape = draft.shape
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "max_position_embeddings": target.config.max_position_embeddings,
        "bos_token_id": None,
        "eos_token_id": target.config.eos_token_id,
        "pad_token_id": target.config.pad_token_id,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
