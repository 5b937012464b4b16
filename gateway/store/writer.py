"""The way of rows to the database: a bounded queue and one thread. Serving only ever appends, and never learns how the database does.

writer = Writer(sink)
writer.start()
writer.put("decisions", row)      any thread
writer.trouble                    why rows do not reach the database now
writer.close()                    stores what waits
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Protocol

from gateway.store.joining import Orphans
from gateway.store.retention import Retention

log = logging.getLogger("trilemma.store")

Row = tuple[str | int | float | bytes | None, ...]
"""Values in the order of `columns.COLUMNS[table]`."""

Item = tuple[str, Row, int]
"""A table, a row of it, and how many bytes of text are in it, where that is much."""

_LONGEST_PAUSE_S = 5.0
_PAUSE_CLOSING_S = 0.05
_TEXT_IN_A_BATCH = 4 << 20


class StoreError(Exception):
    """The database does not do as asked now. The message is for anybody to read: no path, no secret, no value of a row.

    detail: more, for the log alone; no secret and no value either.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class RowsRefused(StoreError):
    """The database is well, and will never take these rows: one at least breaks its rules."""


def by_table(items: Sequence[Item], known: Collection[str]) -> dict[str, list[Row]]:
    """The rows of each table. Raises RowsRefused for a table that is not known."""
    rows: dict[str, list[Row]] = {}
    for table, row, _ in items:
        rows.setdefault(table, []).append(row)
    if not rows.keys() <= set(known):
        raise RowsRefused("no rows are written to such a table")
    return rows


class Sink(Protocol):
    """A database as the writer needs it, used by one thread."""

    def ready(self) -> None:
        """Connects and brings the schema up when that is needed; asked often, so cheap when it is not. Raises StoreError."""
        ...

    def store(self, items: Sequence[Item]) -> None:
        """Stores all or none, for good; a row whose key is there already stays as it is. Raises StoreError, RowsRefused."""
        ...

    def expire(self, table: str, before: str, most: int) -> int:
        """Deletes up to so many rows of decisions whose id is less; how many it were. Raises StoreError."""
        ...

    def sweep(self, after: str, before: str, most: int) -> str:
        """Deletes what was said of decisions that are not there; see joining.Sweep. Raises StoreError."""
        ...

    def close(self) -> None:
        """Lets go of the database. Safe at any time."""
        ...


class Writer:
    """limit: rows that may wait; more are dropped, and counted. room: bytes of text that may wait. batch: rows in one transaction.

    every_s: how long a row may wait for others, and so how much a killed process loses at most. slow_s: a database that takes longer than
    that to answer is in trouble. rounds: how often all that waited was stored.
    """

    def __init__(
        self,
        sink: Sink,
        retention: Retention | None = None,
        orphans: Orphans | None = None,
        *,
        limit: int = 100_000,
        room: int = 64 << 20,
        batch: int = 1_000,
        every_s: float = 0.25,
        slow_s: float = 10.0,
    ) -> None:
        self._sink = sink
        self._retention = retention
        self._orphans = orphans
        self._limit = limit
        self._room = room
        self._batch = batch
        self._every_s = every_s
        self._slow_s = slow_s
        self._pause_s = every_s
        self._queue: deque[Item] = deque()
        self._text_put = 0
        self._text_taken = 0
        self._reason: str | None = None
        self._asked_at: float | None = None
        self._closing = threading.Event()
        self._deadline = 0.0
        # A daemon, so that a database that hangs cannot keep the process.
        self._thread = threading.Thread(target=self._run, name="trilemma-store", daemon=True)
        self._refusal: tuple[str, str] | None = None
        self.dropped = 0
        self.rounds = 0

    def start(self) -> None:
        """Starts the thread, which opens the database at once."""
        self._thread.start()

    def put(self, table: str, row: Row, text: int = 0) -> bool:
        """Never waits; False: it is dropped. text: bytes of it, for a row with much; such rows may only come from one thread."""
        if len(self._queue) >= self._limit or (text and self._text_put + text - self._text_taken > self._room):
            self.dropped += 1
            return False
        if text:
            self._text_put += text
        self._queue.append((table, row, text))
        return True

    @property
    def waiting(self) -> int:
        """Rows that are not in the database yet."""
        return len(self._queue)

    @property
    def trouble(self) -> str | None:
        """Why rows do not reach the database now; None when they do."""
        reason, asked_at = self._reason, self._asked_at
        if reason is None and asked_at is not None and time.monotonic() - asked_at > self._slow_s:
            reason = "the database does not answer"
        if reason is None:
            return None
        lost = f", {self.dropped} were dropped" if self.dropped else ""
        return f"{reason} ({self.waiting} rows wait{lost})"

    def close(self, within_s: float = 5.0) -> None:
        """Stores what waits, as far as the time allows, and ends the thread."""
        self._deadline = time.monotonic() + within_s
        self._closing.set()
        self._thread.join(within_s)
        if self._queue:
            reason = self._reason or "the database did not answer in time"
            log.error("%d rows could not be stored and are lost: %s", len(self._queue), reason)

    def _run(self) -> None:
        self._flush()
        while not self._closing.wait(self._pause_s):
            if self._flush():
                self._tidy()
        while self._queue and time.monotonic() < self._deadline:
            if not self._flush():
                time.sleep(_PAUSE_CLOSING_S)
        self._sink.close()

    def _flush(self) -> bool:
        """Stores what waits; whether it could."""
        self._asked_at = time.monotonic()
        try:
            self._sink.ready()
            left = len(self._queue)  # what comes meanwhile is for the next round, or there would be no end to this one, and a row at a time
            while left > 0:
                items = self._next(left)
                self._store(items)
                left -= len(items)
                self._asked_at = time.monotonic()
        except StoreError as error:
            self._failed(str(error), error.detail)
            return False
        except Exception:
            log.exception("storing rows failed")
            self._failed("a fault of the gateway, see its log")
            return False
        finally:
            self._asked_at = None
        self._worked()
        self.rounds += 1
        return True

    def _next(self, most: int) -> list[Item]:
        """The rows of the next transaction, so many at most. They stay in the queue until they are stored."""
        items: list[Item] = []
        text = 0
        # The other side only appends, and an iterator of a deque minds that; an index, near its ends, does not.
        for index in range(min(most, self._batch)):
            item = self._queue[index]
            text += item[2]
            if items and text > _TEXT_IN_A_BATCH:
                break
            items.append(item)
        return items

    def _store(self, items: Sequence[Item]) -> None:
        """Stores what stands first in the queue and takes it out. A row that is refused for good must not keep the others: it is found by
        halving, and dropped."""
        try:
            self._sink.store(items)
        except RowsRefused as refused:
            if len(items) > 1:
                half = len(items) // 2
                self._store(items[:half])
                self._store(items[half:])
                return
            self.dropped += 1
            about = (items[0][0], str(refused))
            if about != self._refusal:  # once, however many there are
                log.error("the database refuses a row of `%s`, which is dropped: %s", *about)  # noqa: TRY400 - its own words say it
            self._refusal = about
        for _ in items:
            self._text_taken += self._queue.popleft()[2]

    def _tidy(self) -> None:
        """Deletes a little of what is too old. Rows that come meanwhile wait for it no longer than for others."""
        try:
            if self._retention is not None:
                self._retention.step(self._sink.expire)
            if self._orphans is not None:
                self._orphans.step(self._sink.sweep)
        except StoreError as error:
            log.warning("old rows cannot be deleted now: %s", error)
        except Exception:
            log.exception("deleting old rows failed")

    def _failed(self, reason: str, detail: str = "") -> None:
        if reason != self._reason:
            log.warning("rows cannot be stored and wait: %s", f"{reason} ({detail})" if detail else reason)
        self._reason = reason
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def _worked(self) -> None:
        if self._reason is not None:
            log.warning("rows are stored again; %d have been dropped since the start", self.dropped)
        self._reason = None
        self._pause_s = self._every_s
