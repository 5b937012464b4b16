"""What is kept of administration: which configurations ran, and who changed what. With a database there, else in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.access.link import Link
from gateway.config.versions import Versions
from gateway.store.backlog import Backlog
from gateway.store.trail import Trail
from gateway.store.urls import Location

if TYPE_CHECKING:
    from gateway.store.database import Database


class Administration:
    """versions, trail: what it is about. location, database: None: there is no database."""

    def __init__(self, location: Location | None, database: Database | None) -> None:
        self._link = link = None if location is None else Link(location)
        self._backlog = None if link is None else Backlog(link.run)
        self.versions = Versions(self._backlog, database)
        self.trail = Trail(self._backlog, database)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this lasts, what is kept finds its way to the database; what still waits at the end gets a last try."""
        if self._backlog is None or self._link is None:
            yield
            return
        task = asyncio.create_task(self._backlog.run(), name="administration")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self._backlog.close()
            await self._link.close()
