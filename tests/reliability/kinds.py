# SPDX-License-Identifier: Apache-2.0
"""The kinds of requests in a crowd, each with what makes its answer right.

Greedy ones are compared with what the same server answered before, when it had nothing else to do;
vLLM promises that for no kind, but two facts give it here: all linear layers of the target are
8-bit with integer sums, which do not depend on the batch, and everything else is fp32.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import httpx

from tests.reliability.answers import (
    CHATS,
    COMPLETIONS,
    Answer,
    Body,
    WrongAnswer,
    ask,
    ask_streamed,
    events,
)
from tools.serving import ReferencePair

REFERENCE_TOKENS = 96
"""Length of the greedy texts that answers are compared with."""

LENGTHS = (1, 8, 32, REFERENCE_TOKENS)
"""Tokens asked for."""

PREFIX_PROMPTS = 12
"""Prompts in a long prefix; they have 31 to 44 tokens each."""

PHRASE = "[A-Za-z ,.]{20,60}"

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "pattern": f"^{PHRASE}$"}},
    "required": ["text"],
    "additionalProperties": False,
}
"""A pattern, because xgrammar lets control characters, which JSON forbids, into strings that only
have a length."""


@dataclass(frozen=True)
class Reference:
    """A prompt and the greedy text of :data:`REFERENCE_TOKENS` tokens that belongs to it."""

    prompt: str
    text: str


@dataclass(frozen=True)
class Material:
    """What requests are made of.

    Attributes:
        short: single prompts.
        shared: prompts behind one of two long prefixes, for the prefix cache.
        chats: user messages.
    """

    short: Sequence[Reference]
    shared: Sequence[Reference]
    chats: Sequence[str]


Kind = Callable[[httpx.AsyncClient, Material, random.Random], Awaitable[int]]
"""Sends one request and returns the completion tokens of its answer; raises
:class:`WrongAnswer`, or what `httpx` raises when a connection breaks."""


def prompts_of(pair: ReferencePair) -> tuple[list[str], list[str]]:
    """Return short prompts, and longer ones that share two prefixes."""
    short = list(pair.completions[:16])
    rest = pair.completions[16:]
    prefixes = [" ".join(rest[first : first + PREFIX_PROMPTS]) for first in (0, PREFIX_PROMPTS)]
    return short, [f"{prefix} {tail}" for prefix in prefixes for tail in short[:4]]


async def references(client: httpx.AsyncClient, prompts: Sequence[str]) -> list[Reference]:
    """Complete the prompts one after the other."""
    found = []
    for prompt in prompts:
        answer = await ask(client, COMPLETIONS, _greedy(prompt, REFERENCE_TOKENS))
        found.append(Reference(prompt, answer.texts[0]))
    return found


async def whole(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A greedy completion of one of several lengths, in one piece."""
    reference, length = choice.choice(material.short), choice.choice(LENGTHS)
    answer = await ask(client, COMPLETIONS, _greedy(reference.prompt, length))
    return _compared(answer, reference, length)


async def streamed(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """The same, streamed."""
    reference, length = choice.choice(material.short), choice.choice(LENGTHS)
    answer = await ask_streamed(client, COMPLETIONS, _greedy(reference.prompt, length))
    return _compared(answer, reference, length)


async def cached_prefix(
    client: httpx.AsyncClient, material: Material, choice: random.Random
) -> int:
    """A greedy completion of a prompt whose long beginning others have sent before."""
    reference, length = choice.choice(material.shared), choice.choice(LENGTHS)
    answer = await ask(client, COMPLETIONS, _greedy(reference.prompt, length))
    return _compared(answer, reference, length)


async def stop_string(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A greedy completion that has to end before a piece of its own text."""
    reference = choice.choice(material.short)
    first = choice.randrange(len(reference.text) - 8)
    stop = reference.text[first : first + 8]
    body = {**_greedy(reference.prompt, REFERENCE_TOKENS), "stop": [stop]}
    answer = await ask_streamed(client, COMPLETIONS, body)
    _expect(answer.texts[0], reference.text[: reference.text.index(stop)])
    _expect(answer.reasons[0], "stop")
    return answer.tokens


async def log_probabilities(
    client: httpx.AsyncClient, material: Material, choice: random.Random
) -> int:
    """A greedy completion with log-probabilities: they tell its tokens, each the likeliest."""
    reference, length = choice.choice(material.short), choice.choice(LENGTHS)
    body = {**_greedy(reference.prompt, length), "logprobs": 5}
    answer = await ask(client, COMPLETIONS, body)
    if answer.logprobs is None:
        raise WrongAnswer("no log-probabilities")
    chosen, top = answer.logprobs["token_logprobs"], answer.logprobs["top_logprobs"]
    _expect("".join(answer.logprobs["tokens"]), answer.texts[0])
    _expect(len(chosen), length)
    _expect(chosen, [max(candidates.values()) for candidates in top])
    return _compared(answer, reference, length)


async def several_choices(
    client: httpx.AsyncClient, material: Material, choice: random.Random
) -> int:
    """Three sampled completions of one prompt."""
    length = choice.choice(LENGTHS)
    body = {**_sampled(choice.choice(material.short).prompt, length), "n": 3}
    answer = await ask(client, COMPLETIONS, body)
    _expect(answer.reasons, ("length",) * 3)
    _expect(answer.tokens, 3 * length)
    return answer.tokens


async def long_answer(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A sampled completion of 384 tokens, streamed."""
    body = _sampled(choice.choice(material.short).prompt, 384)
    answer = await ask_streamed(client, COMPLETIONS, body)
    _expect((answer.reasons, answer.tokens), (("length",), 384))
    return answer.tokens


async def chat(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A sampled chat, streamed, that may end when the model is done."""
    answer = await ask_streamed(client, CHATS, _message(choice.choice(material.chats), 64))
    if answer.reasons[0] not in ("stop", "length") or not 0 < answer.tokens <= 64:
        raise WrongAnswer(f"incomplete: {answer}")
    return answer.tokens


async def json_schema(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A chat that has to answer with an object of a schema."""
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    body = {**_message(choice.choice(material.chats), 128), "response_format": schema}
    answer = await ask(client, CHATS, body)
    _expect(answer.reasons, ("stop",))
    document = json.loads(answer.texts[0])
    if list(document) != ["text"] or not re.fullmatch(PHRASE, document["text"]):
        raise WrongAnswer(f"not of the schema: {document}")
    return answer.tokens


async def gone_mid_stream(
    client: httpx.AsyncClient, material: Material, choice: random.Random
) -> int:
    """A client that closes the connection after a few pieces of a long answer."""
    body = _sampled(choice.choice(material.short).prompt, 384)
    pieces = choice.randrange(1, 12)
    async with aclosing(events(client, COMPLETIONS, body)) as stream:
        async for _ in stream:
            pieces -= 1
            if not pieces:
                break
    return 0


async def gone_at_once(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A client that goes away while its request waits or its prompt is computed."""
    body = _sampled(choice.choice(material.shared).prompt, 384)
    try:
        async with asyncio.timeout(choice.uniform(0.001, 0.2)):
            await ask(client, COMPLETIONS, body)
    except TimeoutError:
        pass
    return 0


async def refused(client: httpx.AsyncClient, material: Material, choice: random.Random) -> int:
    """A prompt that is longer than the model's context."""
    long = " ".join(reference.prompt for reference in material.shared)
    try:
        await ask(client, COMPLETIONS, _greedy(long, 8))
    except WrongAnswer as answer:
        if str(answer).startswith("status 400") and "context length" in str(answer):
            return 0
        raise
    raise WrongAnswer("a prompt beyond the context was accepted")


KINDS: Mapping[str, Kind] = {
    "greedy": whole,
    "greedy, streamed": streamed,
    "greedy, cached prefix": cached_prefix,
    "greedy, stop string": stop_string,
    "greedy, log-probabilities": log_probabilities,
    "sampled, n = 3": several_choices,
    "sampled, 384 tokens": long_answer,
    "sampled chat": chat,
    "JSON schema": json_schema,
    "client gone mid-stream": gone_mid_stream,
    "client gone at once": gone_at_once,
    "refused, too long": refused,
}


def _greedy(prompt: str, tokens: int) -> Body:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0.0, "ignore_eos": True}


def _sampled(prompt: str, tokens: int) -> Body:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "ignore_eos": True}


def _message(text: str, tokens: int) -> Body:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": tokens, "temperature": 1.0}


def _compared(answer: Answer, reference: Reference, length: int) -> int:
    """Check that a greedy answer is what the unloaded server said, up to its length."""
    _expect((answer.reasons, answer.tokens), (("length",), length))
    text = answer.texts[0]
    _expect(text, reference.text if length == REFERENCE_TOKENS else reference.text[: len(text)])
    return answer.tokens


def _expect(found: object, expected: object) -> None:
    if found != expected:
        raise WrongAnswer(f"{found!r} where {expected!r} was expected")
