"""Following a source: what it last found is kept, whatever becomes of it, and how old that is can be seen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from gateway.pool.discovery.endpoint import Endpoint
from gateway.pool.discovery.source import Failed, Found, News, Source

log = logging.getLogger("trilemma.discovery")

Changed = Callable[[str, tuple[Endpoint, ...]], Awaitable[None]]
"""Takes up all replicas that a backend has now. Called for one change after another, for the first answer too."""

_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Status:
    """How a source does. last_error: what it said last, if that was no answer. age_s: seconds since it last answered; None: never yet."""

    endpoints: tuple[Endpoint, ...]
    last_error: str | None
    age_s: float | None


class Follower:
    """Follows the source of one backend. heard: set by its first news, good or bad."""

    def __init__(
        self,
        name: str,
        source: Source,
        changed: Changed,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.heard = asyncio.Event()
        self._source = source
        self._changed = changed
        self._sleep = sleep
        self._clock = clock
        self._endpoints: tuple[Endpoint, ...] | None = None
        self._error: str | None = None
        self._at: float | None = None
        self._final = False

    def status(self) -> Status:
        """As of now."""
        age_s = None if self._at is None else 0.0 if self._final else self._clock() - self._at
        return Status(self._endpoints or (), self._error, age_s)

    async def run(self) -> None:
        """Until cancelled, or until the source has no more to say."""
        while True:
            try:
                async with aclosing(self._source.watch()) as news:
                    async for each in news:
                        await self._take(each)
                        self.heard.set()
                self._final = True
                return
            except Exception:  # a fault in one source must not end the others, which share a task group
                log.exception("%s: discovery failed", self.name)
                self._error = "a fault of the gateway's own (its log tells more)"
                self.heard.set()
            await self._sleep(_AGAIN_S)

    async def _take(self, news: News) -> None:
        if isinstance(news, Found):
            news = await self._take_up(news)
        error = news.reason if isinstance(news, Failed) else None
        if error != self._error:
            if error is not None:
                log.warning("%s: %s; replicas stay as they were (%d)", self.name, error, len(self._endpoints or ()))
            else:
                log.info("%s: replicas can be looked up again", self.name)
        self._error = error

    async def _take_up(self, found: Found) -> News:
        before, now = self._endpoints, found.endpoints
        if now != before:
            try:
                await self._changed(self.name, now)
            except Exception:  # the next answer tries again
                log.exception("%s: its new replicas could not be taken up", self.name)
                return Failed("new replicas could not be taken up (the log tells why)")
            self._endpoints = now
            log.info("%s: %d replicas%s", self.name, len(now), _difference(before or (), now))
        self._at = self._clock()
        return found


def _difference(before: tuple[Endpoint, ...], now: tuple[Endpoint, ...]) -> str:
    """Who came and went, for the log."""
    old, new = {each.name for each in before}, {each.name for each in now}
    signs = [f"+{name}" for name in sorted(new - old)] + [f"-{name}" for name in sorted(old - new)]
    return f" ({', '.join(signs[:20])}{', ...' if len(signs) > 20 else ''})" if signs else ""
