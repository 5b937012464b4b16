"""Asking engines how busy they are, off the path of requests: their /metrics, every few seconds.

Only engines whose model has several replicas are asked, for the numbers only tell replicas apart; and not llama.cpp, which notices a caller
that has left only while nobody hears from it for a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

from gateway.pool.backend import Backend
from gateway.pool.metrics import LIMIT, Scraped, scraped
from gateway.pool.transport import Transport, TransportError
from gateway.pool.watchers import Watchers

_EVERY_S = 2.0
_LIMIT_S = 2.0


async def scrape(transport: Transport, backend: Backend) -> Scraped | None:
    """What the engine says now; None when it does not."""
    headers = [] if backend.authorization is None else [(b"authorization", backend.authorization)]
    try:
        async with asyncio.timeout(_LIMIT_S):
            upstream = await transport.send("GET", backend.url + "/metrics", headers, b"", backend.timeouts.connect_s)
            try:
                text = bytearray()
                while len(text) < LIMIT and (data := await upstream.read_some()):
                    text += data
            finally:
                upstream.close()
    except (TransportError, TimeoutError):
        return None
    return scraped(bytes(text), time.monotonic()) if upstream.status == 200 else None


class Scraper:
    """One task for each engine that is asked. Owned by a task group; `watch` again replaces the set."""

    def __init__(self, transport: Transport, group: asyncio.TaskGroup, every_s: float = _EVERY_S) -> None:
        self._transport = transport
        self._every_s = every_s
        self._watchers = Watchers(group, "metrics of", lambda backend: partial(self._look, backend))

    def watch(self, backends: Iterable[Backend]) -> None:
        """Asks those of these that are worth asking from now on."""
        known = [each for each in backends if not each.disabled]
        replicas = Counter(public for backend in known for public in backend.models)
        self._watchers.watch(each for each in known if each.adapter.name == "vllm" and any(replicas[public] > 1 for public in each.models))

    def stop(self) -> None:
        """Asks no more."""
        self.watch(())

    async def _look(self, backend: Backend) -> float:
        backend.scraped = await scrape(self._transport, backend) or backend.scraped
        return self._every_s
