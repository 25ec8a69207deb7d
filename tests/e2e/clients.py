# SPDX-License-Identifier: Apache-2.0
"""A client that mixes the kinds of requests which a server meets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from openai import OpenAI

from tools.serving import ReferencePair, Server
from tools.serving.client import connect
from tools.serving.options import MODEL

MAX_TOKENS = 32


@dataclass(frozen=True)
class Kind:
    """One way to ask."""

    chat: bool
    stream: bool
    temperature: float


KINDS = [Kind(*kind) for kind in product((False, True), (False, True), (0.0, 1.0))]


@dataclass(frozen=True)
class Answer:
    """What a request gave.

    Attributes:
        kind: how it was asked.
        text: all of the answer.
        tokens: completion tokens that the server reports.
        finish_reason: why the server ended it.
    """

    kind: Kind
    text: str
    tokens: int
    finish_reason: str | None

    @property
    def is_complete(self) -> bool:
        """True when the server said that it is done and delivered something.

        Completions ignore the end-of-text token, so they end at the limit and nowhere else.
        """
        if self.kind.chat:
            return self.finish_reason in ("stop", "length") and 0 < self.tokens <= MAX_TOKENS
        return self.finish_reason == "length" and self.tokens == MAX_TOKENS and self.text != ""


def send_requests(server: Server, pair: ReferencePair, client: int, count: int) -> list[Answer]:
    """Send ``count`` requests one after the other, going round the kinds and the prompts."""
    answers = []
    with connect(server) as connection:
        for index in range(client, client + count):
            kind = KINDS[index % len(KINDS)]
            prompts = pair.chats if kind.chat else pair.completions
            prompt = prompts[(index * 7 + client) % len(prompts)]
            ask = _chat if kind.chat else _complete
            answers.append(ask(connection, kind, prompt))
    return answers


def _complete(connection: OpenAI, kind: Kind, prompt: str) -> Answer:
    if not kind.stream:
        whole = connection.completions.create(
            model=MODEL,
            prompt=prompt,
            max_tokens=MAX_TOKENS,
            temperature=kind.temperature,
            extra_body={"ignore_eos": True},
        )
        assert whole.usage is not None
        choice = whole.choices[0]
        return Answer(kind, choice.text, whole.usage.completion_tokens, choice.finish_reason)
    text, tokens, reason = "", 0, None
    for part in connection.completions.create(
        model=MODEL,
        prompt=prompt,
        max_tokens=MAX_TOKENS,
        temperature=kind.temperature,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    ):
        for piece in part.choices:
            text += piece.text
            reason = piece.finish_reason or reason
        if part.usage is not None:
            tokens = part.usage.completion_tokens
    return Answer(kind, text, tokens, reason)


def _chat(connection: OpenAI, kind: Kind, prompt: str) -> Answer:
    if not kind.stream:
        whole = connection.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=MAX_TOKENS,
            temperature=kind.temperature,
        )
        assert whole.usage is not None
        choice = whole.choices[0]
        content = choice.message.content or ""
        return Answer(kind, content, whole.usage.completion_tokens, choice.finish_reason)
    text, tokens, reason = "", 0, None
    for part in connection.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=MAX_TOKENS,
        temperature=kind.temperature,
        stream=True,
        stream_options={"include_usage": True},
    ):
        for piece in part.choices:
            text += piece.delta.content or ""
            reason = piece.finish_reason or reason
        if part.usage is not None:
            tokens = part.usage.completion_tokens
    return Answer(kind, text, tokens, reason)
