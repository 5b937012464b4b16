"""A connection of its own to the database, for what serving has to know: keys that changed, what is left of limits, what was learnt.

link = Link(location)
found = await link.read(lambda session: session.rows("SELECT name FROM keys WHERE tenant = ?", "acme"))

One thread does one thing after another, through the driver alone: SQLAlchemy would weigh on every process that serves.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from gateway.store.urls import Location, PostgresUrl
from gateway.store.writer import StoreError

T = TypeVar("T")
Value = str | int | float | bytes | None

_LATE: Final = "the database did not answer in time"


class NoSchema(StoreError):
    """The database, or its tables, are not there yet."""


class Session(Protocol):
    """One transaction. SQL is what both databases know; `?` stands for a value.

    taking: ends a SELECT of rows that this transaction will take out: nobody else does then, and those that somebody holds are passed over.
    """

    taking: str

    def mine(self, turn: int) -> bool:
        """Whether it is this transaction's turn, until it ends: nobody else has it (64 bits). In SQLite whoever writes has every turn."""
        ...

    def alone(self, subjects: Sequence[int]) -> None:
        """From here on nobody else is alone with any of these (32 bits, with sign). In SQLite, whoever writes is alone anyway.

        To be said once, before anything is read.
        """
        ...

    def rows(self, sql: str, *values: Value) -> list[Any]:
        """What is found."""
        ...

    def run(self, sql: str, *values: Value) -> None:
        """Changes something."""
        ...

    def now(self) -> float:
        """Seconds since 1970, by a clock that all who share the database read."""
        ...


class Driver(Protocol):
    """A database, as one thread uses it."""

    def transaction(self, *, writes: bool) -> AbstractContextManager[Session]:
        """Does all or nothing. Raises StoreError, NoSchema."""
        ...

    def close(self) -> None:
        """Lets go of it. It is opened again when needed."""
        ...


@dataclass(frozen=True, slots=True)
class _Job:
    """until: time.monotonic(), after which nobody waits for it."""

    work: Callable[[Session], Any]
    writes: bool
    until: float
    answer: Future[Any] = field(default_factory=Future)


class Link:
    """within_s: how long one thing may take, its wait included. name: of the thread."""

    def __init__(self, location: Location, within_s: float = 2.0, name: str = "trilemma-access") -> None:
        self._location = location
        self._name = name
        self._within_s = within_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def read(self, work: Callable[[Session], T]) -> T:
        """What `work` returns, which only reads. Raises StoreError."""
        return await self._done(work, writes=False)

    async def run(self, work: Callable[[Session], T]) -> T:
        """What `work` returns; all it does is done, or nothing. Raises StoreError; it may have been done then all the same."""
        return await self._done(work, writes=True)

    async def close(self, within_s: float = 1.0) -> None:
        """Ends the thread; what still runs is given so long."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(thread.join, within_s)

    async def _done(self, work: Callable[[Session], T], *, writes: bool) -> T:
        if self._thread is None:
            # A daemon, so that a database that hangs cannot keep the process.
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        job = _Job(work, writes, time.monotonic() + self._within_s)
        self._jobs.put(job)
        try:
            async with asyncio.timeout(self._within_s):
                answer: T = await asyncio.wrap_future(job.answer)
                return answer
        except TimeoutError:
            raise StoreError(_LATE) from None

    def _work(self) -> None:
        driver = _driver(self._location, self._within_s)
        while (job := self._jobs.get()) is not None:
            if not job.answer.set_running_or_notify_cancel():
                continue
            try:
                if time.monotonic() > job.until:
                    raise StoreError(_LATE)
                with driver.transaction(writes=job.writes) as session:
                    answer = job.work(session)
            except BaseException as error:
                job.answer.set_exception(error)
            else:
                job.answer.set_result(answer)
        driver.close()


def _driver(location: Location, within_s: float) -> Driver:
    # Each is imported where it is used: neither is needed by a gateway without a database, and psycopg is an extra.
    if isinstance(location, PostgresUrl):
        from gateway.access.link_postgres import Postgres

        return Postgres(location, within_s)
    from gateway.access.link_sqlite import Sqlite

    return Sqlite(location, within_s)
