# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, each sending one request after the other until the time is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx

from tests.reliability.answers import WrongAnswer, client_of
from tests.reliability.kinds import KINDS, Kind, Material, prompts_of, references
from tools.serving import ReferencePair, Server

CLIENTS = 64
REQUEST_TIMEOUT_S = 120.0
MOST_ERRORS_KEPT = 20


@dataclass
class Tally:
    """What became of the requests of one kind."""

    finished: int = 0
    tokens: int = 0
    failed: int = 0


@dataclass
class Result:
    """What became of all of them.

    Attributes:
        kinds: a tally for each kind.
        errors: the first errors, each with its kind.
        seconds: from the first request to the end of the last.
    """

    kinds: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in KINDS})
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def finished(self) -> int:
        """Requests that went as they should."""
        return sum(tally.finished for tally in self.kinds.values())

    @property
    def tokens(self) -> int:
        """Completion tokens received, without those that a client did not wait for."""
        return sum(tally.tokens for tally in self.kinds.values())


async def unloaded(server: Server, pair: ReferencePair) -> Material:
    """Ask the server, which has nothing else to do, for the texts to compare with."""
    short, shared = prompts_of(pair)
    async with client_of(server.url, 1, REQUEST_TIMEOUT_S) as client:
        return Material(
            await references(client, short), await references(client, shared), pair.chats
        )


async def crowd(
    server: Server,
    material: Material,
    seconds: float,
    clients: int = CLIENTS,
    kinds: Mapping[str, Kind] = KINDS,
) -> Result:
    """Let ``clients`` send requests of all kinds for ``seconds``; the last ones are finished."""
    result = Result()
    started = time.monotonic()

    def is_over() -> bool:
        return time.monotonic() - started >= seconds

    async with (
        client_of(server.url, clients, REQUEST_TIMEOUT_S) as connections,
        asyncio.TaskGroup() as group,
    ):
        for number in range(clients):
            group.create_task(
                _client(connections, material, random.Random(number), kinds, is_over, result)
            )
    result.seconds = time.monotonic() - started
    return result


async def _client(
    connections: httpx.AsyncClient,
    material: Material,
    choice: random.Random,
    kinds: Mapping[str, Kind],
    is_over: Callable[[], bool],
    result: Result,
) -> None:
    """Go through the kinds in an order of this client's own, again and again."""
    names = choice.sample(sorted(kinds), len(kinds))
    while True:
        for name in names:
            if is_over():
                return
            tally = result.kinds[name]
            try:
                tally.tokens += await kinds[name](connections, material, choice)
            except (WrongAnswer, httpx.HTTPError, ValueError) as error:
                # ValueError: no JSON where JSON was asked for.
                tally.failed += 1
                if len(result.errors) < MOST_ERRORS_KEPT:
                    result.errors.append(f"{name}: {type(error).__name__}: {error}")
            else:
                tally.finished += 1
