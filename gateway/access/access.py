"""Who may call, and how much, as a process holds it: limits, the database's keys, and what is amiss with either.

access = Access(location, shared=True, grace_s=3600)
async with access.running(take_up): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.access.leases import SharedLimits
from gateway.access.limits import Limits
from gateway.access.link import Link
from gateway.access.rounds import Rounds
from gateway.access.stored import StoredKeys
from gateway.store.keys import StoredKey
from gateway.store.urls import Location

# How long a start waits for a database whose schema somebody is just making.
_SCHEMA_S: Final = 5.0


class Access:
    """shared: other processes count with the same limits, through the database. grace_s: see StoredKeys. link: to the database, if any."""

    def __init__(self, location: Location | None, *, shared: bool, grace_s: float) -> None:
        self.link = None if location is None else Link(location)
        self._grace_s = grace_s
        self._rounds: Rounds | None = None
        self._stored: StoredKeys | None = None
        self.limits = Limits()
        if shared and self.link is not None:
            self.limits = limits = SharedLimits(self.link)
            self._rounds = limits.rounds

    @asynccontextmanager
    async def running(self, take_up: Callable[[Sequence[StoredKey]], None]) -> AsyncIterator[None]:
        """While this lasts, keys are followed and limits shared. take_up: gets the database's keys, now and when they changed."""
        if self.link is None:
            yield
            return
        stored = self._stored = StoredKeys(self.link, take_up, self._grace_s)
        work = [stored.run()]
        if self._rounds is not None:
            await self._rounds.start(_SCHEMA_S)
            work.append(self._rounds.run())
        await stored.look()
        tasks = [asyncio.create_task(each, name="access") for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if self._rounds is not None:
                await self._rounds.close()
            await self.link.close()

    async def look(self) -> None:
        """The database's keys have changed just now."""
        if self._stored is not None:
            await self._stored.look()

    @property
    def troubles(self) -> list[str]:
        """What does not work although requests are served; for anybody to read."""
        parts = (self._stored, self._rounds)
        return [part.trouble for part in parts if part is not None and part.trouble is not None]
