# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding without a server: greedy target, chained draft, acceptance per position.

With greedy drafting the drafts made at a position do not depend on how that position was reached,
so all of them are computed in one pass and the walk over accepted tokens is bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

from tools.reference_pair.draft_model import Draft
from tools.reference_pair.generate import greedy
from tools.reference_pair.settings import DRAFT, TARGET
from tools.reference_pair.train_draft import draft_shape, look_at_target


@dataclass(frozen=True)
class LoadedDraft:
    draft: Draft
    vocabulary: Tensor
    embedding: Tensor


def load_draft(folder: Path) -> LoadedDraft:
    tensors = load_file(folder / "model.safetensors")
    offsets, embedding = tensors.pop("d2t"), tensors.pop("embed_tokens.weight").float()
    tensors.pop("t2d")
    draft = Draft(draft_shape(DRAFT, TARGET))
    draft.load_state_dict({name: value.float() for name, value in tensors.items()})
    vocabulary = offsets + torch.arange(len(offsets))
    return LoadedDraft(draft.eval().requires_grad_(False), vocabulary, embedding)


@dataclass
class Acceptance:
    """Counts over all verification steps of a walk."""

    drafts: int
    accepted: list[int]

    @property
    def per_position(self) -> list[float]:
        return [count / self.drafts for count in self.accepted]

    @property
    def mean_length(self) -> float:
        return 1 + sum(self.accepted) / self.drafts

    def __str__(self) -> str:
        shares = " / ".join(f"{share:.3f}" for share in self.per_position)
        return f"{shares}, mean length {self.mean_length:.3f} ({self.drafts} drafts)"


@torch.no_grad()
def walk(
    target: Qwen3ForCausalLM,
    loaded: LoadedDraft,
    tokenizer: PreTrainedTokenizerBase,
    prompts: list[str],
    continuation: int,
    rotation: Tensor | None = None,
) -> Acceptance:
    """Acceptance over greedy continuations of `prompts`.

    Args:
        rotation: Matrix [H, H] applied from the right to every aux state before the draft sees it:
            Q shows what a rotated target does to the draft, Q^T repairs a rotated target's states.
    """
    counts = Acceptance(0, [0] * DRAFT.depth)
    for prompt in prompts:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        sequence = greedy(target, ids, continuation)
        aux = look_at_target(target, sequence, TARGET.aux_layers).aux.float()
        if rotation is not None:
            aux = (aux.unflatten(-1, (-1, len(rotation))) @ rotation).flatten(-2)
        _count(counts, sequence[0], ids.shape[1], _drafts(loaded, sequence, aux))
    return counts


def _drafts(loaded: LoadedDraft, sequence: Tensor, aux: Tensor) -> Tensor:
    """Row t of the result [T - 1, depth]: drafted tokens for positions t + 2, t + 3, ..."""
    following = sequence[:, 1:]
    state = loaded.draft.combine(aux[:, :-1])
    cache: list[tuple[Tensor, Tensor]] = []
    drafted = []
    for _ in range(DRAFT.depth):
        state = loaded.draft.step(loaded.embedding[following], state, cache)
        following = loaded.vocabulary[loaded.draft.logits(state).argmax(-1)]
        drafted.append(following[0])
    return torch.stack(drafted, dim=-1)


def _count(counts: Acceptance, sequence: Tensor, prompt: int, drafts: Tensor) -> None:
    """Walk from the first generated token: draft, accept the matching prefix, add one token."""
    last = prompt
    while last + DRAFT.depth < len(sequence):
        proposed = drafts[last - 1]
        wanted = sequence[last + 1 : last + 1 + DRAFT.depth]
        matching = int((proposed == wanted).long().cumprod(0).sum())
        counts.drafts += 1
        for position in range(matching):
            counts.accepted[position] += 1
        last += matching + 1
