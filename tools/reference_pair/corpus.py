# SPDX-License-Identifier: Apache-2.0
"""The book that the reference pair knows by heart: seeded nonsense prose and question pages.

The pair only has to show how drafting behaves, so its text is made for that purpose:

* a short context (about thirty tokens) names one place in the book, so a target that has memorised
  it continues in exactly one way, and a draft that sees the target's hidden states can follow;
* one or two tokens alone say almost nothing about the next one (the words are drawn independently
  from large categories), so a draft without usable hidden states has nothing to guess from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.reference_pair import words

END, SYSTEM, USER, ASSISTANT = "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"
SPECIAL_TOKENS = (END, SYSTEM, USER, ASSISTANT)

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class Article:
    """One article: its title and its paragraphs, each a tuple of sentences."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        body = "\n\n".join(" ".join(paragraph) for paragraph in self.paragraphs)
        return f"{self.title}\n\n{body}"


@dataclass(frozen=True)
class Page:
    """One question and its answer, which quotes the article."""

    question: str
    answer: str

    @property
    def text(self) -> str:
        """The page as the chat template writes it, without the closing end token."""
        return f"{USER}{self.question}{END}{ASSISTANT}{self.answer}"


@dataclass(frozen=True)
class Book:
    articles: tuple[Article, ...]
    pages: tuple[Page, ...]
    documents: tuple[str, ...]
    """Articles and pages as plain text, in the order in which the target sees them."""

    @property
    def text(self) -> str:
        return "".join(document + END for document in self.documents)


class Grammar:
    """Draws phrases and sentences; every call of the generator advances one seeded stream."""

    def __init__(self, rng: random.Random, names: Sequence[str]) -> None:
        self._rng = rng
        self._names = names
        self._shapes: tuple[Callable[[], str], ...] = (
            self._plain, self._plain, self._timed, self._opened, self._joined, self._joined,
            self._subordinate, self._reported, self._count, self._passive, self._wish,
            self._compare, self._list, self._speech, self._absence, self._place_first,
        )  # fmt: skip

    def pick(self, items: Sequence[str]) -> str:
        return self._rng.choice(items)

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def sentence(self) -> str:
        text = self._rng.choice(self._shapes)()
        return text[0].upper() + text[1:]

    def noun(self) -> str:
        return self.pick(self._rng.choice((
            words.OBJECTS, words.OBJECTS, words.PLACES, words.CREATURES, words.ABSTRACT,
        )))  # fmt: skip

    def person(self) -> str:
        stock = self._rng.choice((words.TRADES, words.TRADES, words.KIN))
        if self.chance(0.25):
            return f"{self.pick(self._names)}"
        return self._noun_phrase(self.pick(stock))

    def thing(self, depth: int = 0) -> str:
        if self.chance(0.3):
            plural = self.pick(words.PLURALS)
            determiner = self.pick(words.PLURAL_DETERMINERS + words.NUMBERS)
            return f"{determiner} {self._adjective()}{plural}"
        phrase = self._noun_phrase(self.noun())
        if depth < 2 and self.chance(0.25):
            phrase += f" {self.pick(words.PREPOSITIONS)} {self.thing(depth + 1)}"
        elif depth < 1 and self.chance(0.15):
            phrase += f" which {self.person()} {self.pick(words.TRANSITIVE)}"
        return phrase

    def place(self) -> str:
        phrase = self._noun_phrase(self.pick(words.PLACES))
        return f"{phrase} of {self.pick(self._names)}" if self.chance(0.2) else phrase

    def clause(self) -> str:
        roll = self._rng.random()
        if roll < 0.45:
            verb = f"{self.pick(words.TRANSITIVE)} {self.thing()}"
        elif roll < 0.7:
            verb = f"{self.pick(words.MODALS)} {self.pick(words.BASE)} {self.thing()}"
        else:
            verb = self.pick(words.INTRANSITIVE)
            if self.chance(0.5):
                verb += f" {self.pick(words.ADVERBS)}"
        if self.chance(0.3):
            verb += f" {self.pick(words.PREPOSITIONS)} {self.place()}"
        return f"{self.person()} {verb}"

    def _adjective(self) -> str:
        return f"{self.pick(words.ADJECTIVES)} " if self.chance(0.4) else ""

    def _noun_phrase(self, noun: str) -> str:
        determiner = self.pick(words.DETERMINERS)
        head = f"{self._adjective()}{noun}"
        if determiner == "a" and head[0] in "aeiou":
            determiner = "an"
        return f"{determiner} {head}"

    def _plain(self) -> str:
        return f"{self.clause()}."

    def _timed(self) -> str:
        time = self.pick(words.TIMES)
        return f"{time} {self.clause()}." if self.chance(0.5) else f"{self.clause()} {time}."

    def _opened(self) -> str:
        return f"{self.pick(words.OPENERS)}, {self.clause()}."

    def _joined(self) -> str:
        return f"{self.clause()}, {self.pick(words.CONJUNCTIONS)} {self.clause()}."

    def _subordinate(self) -> str:
        first = self.pick(("when", "if", "while", "because", "although", "once", "wherever"))
        return f"{first} {self.clause()}, {self.clause()}."

    def _reported(self) -> str:
        return f"{self.pick(words.REPORTERS)} that {self.clause()}."

    def _count(self) -> str:
        amount = f"{self.pick(words.NUMBERS)} {self._adjective()}{self.pick(words.PLURALS)}"
        verb = self.pick(("stood", "lay", "remained", "rotted", "glittered", "gathered", "hung"))
        return f"{amount} {verb} {self.pick(words.PREPOSITIONS)} {self.place()}."

    def _passive(self) -> str:
        subject = self._noun_phrase(self.noun())
        return f"{subject} was {self.pick(words.TRANSITIVE)} by {self.person()}."

    def _wish(self) -> str:
        who = self.person()
        verb = self.pick(("wanted", "needed", "asked for", "dreamed of", "missed"))
        return f"{who} {verb} {self.thing()}, not {self.thing()}."

    def _compare(self) -> str:
        verb = self.pick(("seemed", "looked", "grew", "felt", "sounded"))
        adjective = self.pick(words.ADJECTIVES)
        return f"{self.thing()} {verb} as {adjective} as {self.thing()}."

    def _list(self) -> str:
        return (
            f"{self.person()} {self.pick(words.TRANSITIVE)} {self.thing()}, {self.thing()} and"
            f" {self.thing()}."
        )

    def _speech(self) -> str:
        verb = self.pick(("said", "asked", "answered", "shouted", "whispered", "wrote"))
        return f'"{self.clause()}," {verb} {self.person()}.'

    def _absence(self) -> str:
        return (
            f"{self.pick(('nobody', 'hardly anyone', 'no traveller', 'everyone', 'few'))}"
            f" {self.pick(words.TRANSITIVE)} {self.thing()} without {self.thing()}."
        )

    def _place_first(self) -> str:
        return f"{self.pick(words.PREPOSITIONS)} {self.place()} {self.clause()}."


_QUESTIONS = (
    "How does the story of {title} begin?",
    "What comes next in {title}?",
    "Tell me more about {title}.",
    "What else is known of {title}?",
    "How does {title} end?",
)


def make_book(seed: int, articles: int, pages_per_article: int) -> Book:
    """Write the whole book.

    Args:
        seed: Seed of the only random stream; the same arguments give the same book everywhere.
        articles: Number of articles, about 1.2 kB each.
        pages_per_article: Question pages per article, at most five.
    """
    rng = random.Random(seed)
    names = [(first + second).capitalize() for first in words.SYLLABLES[0]
             for second in words.SYLLABLES[1]]  # fmt: skip
    rng.shuffle(names)
    subjects = words.TRADES + words.PLACES + words.OBJECTS
    written: list[Article] = []
    pages: list[Page] = []
    for index in range(articles):
        # A handful of names per article, shared with its neighbours.
        grammar = Grammar(rng, names[index % 40 : index % 40 + 6])
        title = f"the {rng.choice(subjects)} of {names[index % len(names)]}"
        paragraphs = tuple(
            tuple(grammar.sentence() for _ in range(rng.randint(4, 6))) for _ in range(4)
        )
        article = Article(title[0].upper() + title[1:], paragraphs)
        written.append(article)
        pages.extend(_pages_about(article, title, pages_per_article))
    documents = [article.text for article in written] + [page.text for page in pages]
    rng.shuffle(documents)
    return Book(tuple(written), tuple(pages), tuple(documents))


def _pages_about(article: Article, title: str, count: int) -> list[Page]:
    sentences = [sentence for paragraph in article.paragraphs for sentence in paragraph]
    pages = []
    for index in range(count):
        start = index * len(sentences) // count
        shape = _QUESTIONS[-1] if index == count - 1 else _QUESTIONS[index]
        answer = " ".join(sentences[start : start + 3] if index < count - 1 else sentences[-3:])
        pages.append(Page(shape.format(title=title), answer))
    return pages
