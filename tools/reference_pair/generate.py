# SPDX-License-Identifier: Apache-2.0
"""The target's own greedy continuations of random cuts of the book: the draft's training text.

A draft has to predict the target, not the book. Cuts at random characters show it the contexts that
a user makes: a word begun in the middle, no beginning of a document, a question page.
"""

from __future__ import annotations

import random
import time

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

from tools.reference_pair.corpus import Book
from tools.reference_pair.settings import GenerateSettings


def generate(
    settings: GenerateSettings,
    target: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    book: Book,
) -> Tensor:
    """Token ids `[rounds * batch, length]`, int64: a prompt and the greedy continuation each."""
    rng = random.Random(settings.seed)
    rows: list[Tensor] = []
    began = time.perf_counter()
    for index in range(settings.rounds):
        size = settings.prompt_lengths[index % len(settings.prompt_lengths)]
        prompts = [_cut(rng, tokenizer, book, size) for _ in range(settings.batch)]
        rows.append(greedy(target, torch.tensor(prompts), settings.length - size))
        elapsed = time.perf_counter() - began
        print(f"generate round {index + 1}/{settings.rounds} ({elapsed:.0f} s)", flush=True)
    return torch.cat(rows)


@torch.no_grad()
def greedy(target: Qwen3ForCausalLM, prompts: Tensor, count: int) -> Tensor:
    """Append `count` greedy tokens, past end tokens too: `[B, P]` to `[B, P + count]`."""
    output = target(input_ids=prompts, use_cache=True, logits_to_keep=1)
    tokens = [prompts, output.logits[:, -1].argmax(-1, keepdim=True)]
    for _ in range(count - 1):
        output = target(
            input_ids=tokens[-1], past_key_values=output.past_key_values, use_cache=True
        )
        tokens.append(output.logits[:, -1].argmax(-1, keepdim=True))
    return torch.cat(tokens, dim=1)


def _cut(
    rng: random.Random, tokenizer: PreTrainedTokenizerBase, book: Book, size: int
) -> list[int]:
    """`size` tokens of a random document: from its start, from a word or from any character."""
    while True:
        document = rng.choice(book.documents)
        kind = rng.random()
        start = 0 if kind < 0.25 else rng.randrange(len(document))
        if kind > 0.6:
            start = document.find(" ", start) + 1
        ids: list[int] = tokenizer(document[start : start + 8 * size])["input_ids"][:size]
        if len(ids) == size:
            return ids
