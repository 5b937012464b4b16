"""What is to be written to the database for administration: a little, in order, as soon as it can be.

backlog = Backlog(link.run)
backlog.put(lambda session: session.run("INSERT ..."))
await backlog.flush()                                     whether all is in the database
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from gateway.store.writer import StoreError

if TYPE_CHECKING:
    from gateway.access.link import Session

log = logging.getLogger("trilemma.store")

Work = Callable[["Session"], Any]
"""Something to be written in one transaction; doing it twice must be the same as doing it once."""

Run = Callable[[Work], Awaitable[Any]]
"""Does it, and returns what it returns. Raises StoreError; it may still have been done then."""

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 10.0


def nothing(_answer: Any) -> None:
    """Nobody waits for it."""


class Backlog:
    """A bounded queue in memory. run: see Run. limit: what may wait; more is lost, and logged."""

    def __init__(self, run: Run, limit: int = 1_000) -> None:
        self._run = run
        self._limit = limit
        self._waiting: deque[tuple[Work, Callable[[Any], None]]] = deque()
        self._some = asyncio.Event()
        self._lock = asyncio.Lock()
        self._trouble: str | None = None

    def put(self, work: Work, then: Callable[[Any], None] = nothing) -> None:
        """Never waits. then: is told what `work` returned, once it is done."""
        if len(self._waiting) >= self._limit:
            log.error("too much waits for the database: an entry of the administration's record is lost")
            return
        self._waiting.append((work, then))
        self._some.set()

    async def flush(self) -> bool:
        """Writes what waits; whether nothing waits any more."""
        async with self._lock:
            while self._waiting:
                work, then = self._waiting[0]
                try:
                    answer = await self._run(work)
                except StoreError as error:
                    self._failed(str(error))
                    return False
                except Exception:
                    log.exception("an entry of the administration's record cannot be written, and is lost")
                    self._waiting.popleft()
                    continue
                self._waiting.popleft()
                then(answer)
            self._some.clear()
            self._worked()
            return True

    async def run(self) -> None:
        """Writes what is put, until cancelled; after a failure again and again, with pauses."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._some.wait()
            if await self.flush():
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        """The last try."""
        if self._waiting and not await self.flush():
            log.error("%d entries of the administration's record could not be stored and are lost: %s", len(self._waiting), self._trouble)

    def _failed(self, reason: str) -> None:
        if reason != self._trouble:
            log.info("the administration's record waits for the database: %s", reason)
        self._trouble = reason

    def _worked(self) -> None:
        if self._trouble is not None:
            log.info("the administration's record is stored again")
        self._trouble = None
