# SPDX-License-Identifier: Apache-2.0
"""Greedy completions through the `openai` client, timed and counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openai import APIConnectionError, APIStatusError, DefaultHttpxClient, OpenAI

from tools.serving.options import MODEL
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import SpecCounters
from vllm_eagle3_quarot.serving.server import Server

REQUEST_TIMEOUT_S = 120.0
WARM_UP_PROMPTS = 2
"""Requests before the clock starts: the first ones pay for lazy imports and allocations."""


@dataclass(frozen=True)
class GreedyRun:
    """What came back, and what it took.

    Attributes:
        texts: one completion per prompt, in order.
        tokens: completion tokens, all prompts together.
        seconds: wall time, one request after the other.
        counters: what the server counted meanwhile.
    """

    texts: tuple[str, ...]
    tokens: int
    seconds: float
    counters: SpecCounters

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second of wall time."""
        return self.tokens / self.seconds


def connect(server: Server) -> OpenAI:
    """Return a client that neither retries nor looks for a proxy."""
    return OpenAI(
        base_url=f"{server.url}/v1",
        api_key="unused",
        max_retries=0,
        http_client=DefaultHttpxClient(timeout=REQUEST_TIMEOUT_S, trust_env=False),
    )


def greedy_run(
    server: Server,
    prompts: Sequence[str],
    max_tokens: int,
    done: Callable[[int], None] | None = None,
) -> GreedyRun:
    """Complete every prompt with exactly ``max_tokens`` tokens at temperature 0, one by one.

    Args:
        done: called after each prompt with the number of prompts finished.

    Raises:
        ServingError: the server died or refused a request.
    """
    texts: list[str] = []
    tokens = 0
    try:
        with connect(server) as client:
            for prompt in prompts[:WARM_UP_PROMPTS]:
                complete(client, prompt, max_tokens)
            before, started = server.counters(), time.monotonic()
            for count, prompt in enumerate(prompts, 1):
                text, used = complete(client, prompt, max_tokens)
                texts.append(text)
                tokens += used
                if done is not None:
                    done(count)
            seconds = time.monotonic() - started
            counters = server.counters() - before
    except (APIConnectionError, APIStatusError) as error:
        raise server.death_notice() or ServingError(
            f"a request to {server.url} failed: {error} (log: {server.log})"
        ) from None
    return GreedyRun(tuple(texts), tokens, seconds, counters)


def complete(client: OpenAI, prompt: str, max_tokens: int) -> tuple[str, int]:
    """Return the greedy completion and its number of tokens; the end-of-text token is ignored."""
    answer = client.completions.create(
        model=MODEL,
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=0.0,
        extra_body={"ignore_eos": True},
    )
    if answer.usage is None:
        raise ServingError("the server's answer has no token counts")
    return answer.choices[0].text, answer.usage.completion_tokens
