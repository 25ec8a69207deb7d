# SPDX-License-Identifier: Apache-2.0
"""Clients that are reading their streams when something happens to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx

from tests.reliability.answers import COMPLETIONS, WrongAnswer, client_of, events
from tools.serving import Server

CLIENTS = 4
TOKENS = 900
"""Of each answer: some seconds, so that none is complete when the server is struck."""

ANSWER_WITHIN_S = 60.0


async def interrupted_streams(server: Server, strike: Callable[[], None]) -> list[str]:
    """Open streams, call ``strike`` when each has begun, and say how each of them ended.

    Raises:
        TimeoutError: a client still waits :data:`ANSWER_WITHIN_S` seconds later.
    """
    begun = [asyncio.Event() for _ in range(CLIENTS)]

    async def read(event: asyncio.Event) -> str:
        body = {"prompt": "A", "max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True}
        try:
            async for _ in events(client, COMPLETIONS, body):
                event.set()
        except WrongAnswer as error:
            return str(error)
        except httpx.HTTPError as error:
            return type(error).__name__
        return "complete"

    async with client_of(server.url, CLIENTS, ANSWER_WITHIN_S) as client:
        readers = [asyncio.create_task(read(event)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        strike()
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await asyncio.gather(*readers)
