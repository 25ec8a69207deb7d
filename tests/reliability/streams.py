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

PATIENCE_S = 15.0
"""After the strike. vLLM 0.23.0 that is told to end while it streams may end its engine first and
then wait for connections whose streams nobody feeds any more, until the clients go."""

GAVE_UP = "gave up"


async def interrupted_streams(server: Server, strike: Callable[[], None]) -> list[str]:
    """Open streams, call ``strike`` when each has begun, and say how each of them ended.

    A client that hears nothing for :data:`PATIENCE_S` seconds goes: :data:`GAVE_UP`.
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
        ended, waiting = await asyncio.wait(readers, timeout=PATIENCE_S)
        for reader in waiting:
            reader.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return [*(reader.result() for reader in ended), *(GAVE_UP for _ in waiting)]
