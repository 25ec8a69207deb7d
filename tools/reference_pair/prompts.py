# SPDX-License-Identifier: Apache-2.0
"""Prompts for demo and tests: cuts of the book at word boundaries, questions of its chat pages."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from tools.reference_pair.corpus import Book
from tools.reference_pair.settings import PromptSettings


@dataclass(frozen=True)
class Prompts:
    completions: list[str]
    chats: list[str]

    def save(self, path: Path) -> None:
        content = {"completions": self.completions, "chats": self.chats}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def make_prompts(settings: PromptSettings, book: Book) -> Prompts:
    """Passages of 150 to `characters` characters spread evenly over the articles, and questions.

    No training window was chosen by these cuts; the passages themselves are part of the book.
    """
    rng = random.Random(settings.seed)
    completions = []
    for index in range(settings.completions):
        article = book.articles[index * len(book.articles) // settings.completions]
        room = len(article.text) - settings.characters - 400
        start = article.text.find(" ", rng.randrange(max(1, room)))
        passage = article.text[start : start + rng.randint(190, settings.characters)]
        completions.append(passage[: passage.rfind(" ")].strip())
    pages = rng.sample(book.pages, settings.chats)
    return Prompts(completions, [page.question for page in pages])
