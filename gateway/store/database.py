"""The database for everything that asks it something. Questions run in threads of its own, so that serving never waits for them.

database = Database(location)
found = await database.read(lambda connection: queries.decision(connection, id_))
await database.run(lambda connection: keys.add_key(connection, key))

SQLAlchemy is loaded by those threads with the first question.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gateway.store.urls import Location, SqliteUrl
from gateway.store.writer import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

T = TypeVar("T")

_LATE: Final = "the database did not answer in time"
# The database itself gives up at the deadline, and what it says then is better than silence.
_SLACK_S = 1.0


@dataclass(frozen=True, slots=True)
class _Job:
    """A question. until: time.monotonic(). transaction: whether it runs in one."""

    work: Callable[[Any], Any]
    until: float
    writes: bool
    transaction: bool = True
    answer: Future[Any] = field(default_factory=Future)


class Database:
    """threads: questions that are answered at once. waiting: more that may wait. within_s: how long one may take, its wait included."""

    def __init__(self, location: Location, *, threads: int = 2, waiting: int = 64, within_s: float = 5.0) -> None:
        self._location = location
        self._size = threads
        self._waiting = waiting
        self._within_s = within_s
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._made: Engine | None = None

    async def run(self, work: Callable[[Connection], T], within_s: float | None = None) -> T:
        """What `work` returns; all that it does is done, or nothing of it. Raises StoreError, and what `work` raises.

        When it did not answer in time it may still have been done.
        """
        return await self._ask(work, within_s, writes=True)

    async def read(self, work: Callable[[Connection], T], within_s: float | None = None) -> T:
        """As `run`, for what only reads: it sees one moment's rows, and waits for no writer."""
        return await self._ask(work, within_s, writes=False)

    async def scrub(self) -> None:
        """What was deleted leaves SQLite's write-ahead log as well, as far as nobody reads there now. Raises StoreError."""
        if isinstance(self._location, SqliteUrl):
            await self._ask(_checkpoint, None, writes=True, transaction=False)

    async def close(self, within_s: float = 2.0) -> None:
        """Ends the threads; what still runs is given so long."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        deadline = time.monotonic() + within_s
        for thread in threads:
            await asyncio.to_thread(thread.join, max(0.0, deadline - time.monotonic()))

    async def _ask(self, work: Callable[[Any], T], within_s: float | None, *, writes: bool, transaction: bool = True) -> T:
        if self._jobs.qsize() >= self._waiting:
            raise StoreError("too many questions wait for the database")
        within_s = self._within_s if within_s is None else within_s
        job = _Job(work, time.monotonic() + within_s, writes, transaction)
        self._start()
        self._jobs.put(job)
        try:
            async with asyncio.timeout(within_s + _SLACK_S):
                answer: T = await asyncio.wrap_future(job.answer)
                return answer
        except TimeoutError:
            raise StoreError(_LATE) from None

    def _start(self) -> None:
        if self._threads:
            return
        # Daemons, so that a database that hangs cannot keep the process.
        self._threads = [threading.Thread(target=self._work, name=f"trilemma-database-{n}", daemon=True) for n in range(self._size)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.answer.set_running_or_notify_cancel():
                continue
            try:
                answer = self._answer(job)
            except BaseException as error:
                job.answer.set_exception(error)
            else:
                job.answer.set_result(answer)
        with self._lock:
            if self._made is not None:
                self._made.dispose()  # of the connections that are not in use; the last thread leaves none

    def _answer(self, job: _Job) -> Any:
        if time.monotonic() > job.until:
            raise StoreError(_LATE)
        from sqlalchemy.exc import DBAPIError

        from gateway.store.engine import Begin, failure

        try:
            if not job.transaction:
                with contextlib.closing(self._engine().raw_connection()) as plain:
                    return job.work(plain)
            begin = Begin(writes=job.writes, until=job.until)
            with self._engine().connect().execution_options(begin=begin) as connection, connection.begin():
                return job.work(connection)
        except DBAPIError as error:
            raise failure(error) from None

    def _engine(self) -> Engine:
        from gateway.store.engine import engine

        with self._lock:
            if self._made is None:
                self._made = engine(self._location, busy_s=self._within_s, size=self._size)
            return self._made


def _checkpoint(connection: Any) -> None:
    connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
