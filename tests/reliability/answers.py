# SPDX-License-Identifier: Apache-2.0
"""What a server answers, over plain HTTP, whole or streamed.

`httpx` and the server's JSON as it is: a client library between would cost more of the two cores
than the server gets.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tools.serving.options import MODEL

Body = Mapping[str, Any]

COMPLETIONS = "/v1/completions"
CHATS = "/v1/chat/completions"

END_OF_STREAM = "[DONE]"


class WrongAnswer(Exception):
    """The server answered, and the answer is not the one that it has to be."""


@dataclass(frozen=True)
class Answer:
    """One finished request.

    Attributes:
        texts: text of each choice, in the order of their indices.
        reasons: why the server ended each.
        tokens: completion tokens that the server reports, all choices together.
        logprobs: the ``logprobs`` object of the first choice, where it was asked for.
    """

    texts: tuple[str, ...]
    reasons: tuple[str | None, ...]
    tokens: int
    logprobs: Mapping[str, Any] | None = None


def client_of(url: str, connections: int, timeout_s: float) -> httpx.AsyncClient:
    """A client of one server that looks for no proxy and keeps its connections."""
    return httpx.AsyncClient(
        base_url=url,
        trust_env=False,
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
    )


async def ask(client: httpx.AsyncClient, path: str, body: Body) -> Answer:
    """Send one request and wait for the whole answer.

    Raises:
        WrongAnswer: the server refused it.
    """
    response = await client.post(path, json={"model": MODEL, **body})
    if response.status_code != httpx.codes.OK:
        raise WrongAnswer(f"status {response.status_code}: {response.text[:300]}")
    document = response.json()
    choices = sorted(document["choices"], key=lambda choice: int(choice["index"]))
    return Answer(
        tuple(_text(choice, "message") for choice in choices),
        tuple(choice["finish_reason"] for choice in choices),
        document["usage"]["completion_tokens"],
        choices[0].get("logprobs"),
    )


async def ask_streamed(client: httpx.AsyncClient, path: str, body: Body) -> Answer:
    """Send one request for one choice and put the pieces of its stream together.

    Raises:
        WrongAnswer: the server refused it, or the stream ended before it was complete.
    """
    text, reason, tokens = "", None, 0
    usage = {"stream_options": {"include_usage": True}}
    async for event in events(client, path, {**body, **usage}):
        for choice in event["choices"]:
            text += _text(choice, "delta")
            reason = choice["finish_reason"] or reason
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    return Answer((text,), (reason,), tokens)


async def events(
    client: httpx.AsyncClient, path: str, body: Body
) -> AsyncGenerator[Mapping[str, Any], None]:
    """The events of a streamed request, as they come.

    Whoever stops listening closes the connection, which is how a client goes away.

    Raises:
        WrongAnswer: the server refused it, sent an error, or closed the stream early.
    """
    request = {"model": MODEL, "stream": True, **body}
    async with client.stream("POST", path, json=request) as response:
        if response.status_code != httpx.codes.OK:
            await response.aread()
            raise WrongAnswer(f"status {response.status_code}: {response.text[:300]}")
        async for line in response.aiter_lines():
            content = line.removeprefix("data: ")
            if content == END_OF_STREAM:
                return
            if not content:
                continue
            event = json.loads(content)
            if "error" in event:
                raise WrongAnswer(f"error in the stream: {event['error']}")
            yield event
    raise WrongAnswer("the stream ended without its end mark")


def _text(choice: Mapping[str, Any], wrapper: str) -> str:
    """The text of a choice: on its own for completions, in an object for chats."""
    holder = choice.get(wrapper)
    return (choice["text"] if holder is None else holder.get("content")) or ""
