"""Reading a source's news one by one: it goes on only as far as the test asks, and never really sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.pool.discovery.source import Failed, Found, News, Source


class Reading:
    """pauses: what the source meant to sleep. at_pause: runs within each."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.at_pause: Callable[[], None] = lambda: None
        self._news: AsyncGenerator[News, None] | None = None

    async def sleep(self, seconds: float) -> None:
        """In place of asyncio.sleep."""
        self.pauses.append(seconds)
        self.at_pause()
        await asyncio.sleep(0)

    @asynccontextmanager
    async def of(self, source: Source) -> AsyncIterator[Reading]:
        """Reads that source within the block."""
        self._news = source.watch()
        try:
            yield self
        finally:
            await self._news.aclose()

    async def next(self, within_s: float = 10.0) -> News:
        """The next news, within seconds of the loop."""
        assert self._news is not None
        async with asyncio.timeout(within_s):
            return await anext(self._news)

    async def found(self) -> list[str]:
        """The URLs of the next news, which has to be good."""
        news = await self.next()
        assert isinstance(news, Found), news
        return [endpoint.url for endpoint in news.endpoints]

    async def failed(self) -> str:
        """The reason of the next news, which has to be bad."""
        news = await self.next()
        assert isinstance(news, Failed), news
        return news.reason
