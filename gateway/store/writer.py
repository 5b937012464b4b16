"""The way of rows to the database: a bounded queue and one thread. Serving only ever appends, and never learns how the database does.

writer = Writer(sink)
writer.start()
writer.put(row)        any thread
writer.trouble         why rows do not reach the database now
writer.close()         stores what waits
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger("trilemma.store")

Row = tuple[str | int | float | None, ...]

_LONGEST_PAUSE_S = 5.0
_PAUSE_CLOSING_S = 0.05


class StoreError(Exception):
    """The database does not take rows now. The message is for anybody to read: no path, no secret."""


class Sink(Protocol):
    """A database as the writer needs it, used by one thread."""

    def ready(self) -> None:
        """Connects and brings the schema up when that is needed; asked often, so cheap when it is not. Raises StoreError."""
        ...

    def store(self, rows: Sequence[Row]) -> None:
        """Stores all or none, for good; a row whose id is there already stays as it is. Raises StoreError."""
        ...

    def close(self) -> None:
        """Lets go of the database. Safe at any time."""
        ...


class Writer:
    """limit: rows that may wait; more are dropped, and counted. batch: rows in one transaction. every_s: how long a row may wait
    for others, and so how much a killed process loses at most."""

    def __init__(self, sink: Sink, *, limit: int = 50_000, batch: int = 1_000, every_s: float = 0.25) -> None:
        self._sink = sink
        self._limit = limit
        self._batch = batch
        self._every_s = every_s
        self._pause_s = every_s
        self._queue: deque[Row] = deque()
        self._reason: str | None = None
        self._closing = threading.Event()
        self._deadline = 0.0
        # A daemon, so that a database that hangs cannot keep the process.
        self._thread = threading.Thread(target=self._run, name="trilemma-store", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        """Starts the thread, which opens the database at once."""
        self._thread.start()

    def put(self, row: Row) -> None:
        """Never waits."""
        if len(self._queue) < self._limit:
            self._queue.append(row)
        else:
            self.dropped += 1

    @property
    def waiting(self) -> int:
        """Rows that are not in the database yet."""
        return len(self._queue)

    @property
    def trouble(self) -> str | None:
        """Why rows do not reach the database now; None when they do."""
        reason = self._reason
        if reason is None:
            return None
        lost = f", {self.dropped} were dropped" if self.dropped else ""
        return f"{reason} ({self.waiting} decisions wait{lost})"

    def close(self, within_s: float = 5.0) -> None:
        """Stores what waits, as far as the time allows, and ends the thread."""
        self._deadline = time.monotonic() + within_s
        self._closing.set()
        self._thread.join(within_s)
        if self._queue:
            reason = self._reason or "the database did not answer in time"
            log.error("%d decisions could not be stored and are lost: %s", len(self._queue), reason)

    def _run(self) -> None:
        self._flush()
        while not self._closing.wait(self._pause_s):
            self._flush()
        while self._queue and time.monotonic() < self._deadline:
            if not self._flush():
                time.sleep(_PAUSE_CLOSING_S)
        self._sink.close()

    def _flush(self) -> bool:
        """Stores what waits; whether it could."""
        queue = self._queue
        try:
            self._sink.ready()
            while queue:
                # Not popped before they are stored. Only this thread pops, so an index keeps its meaning.
                rows = [queue[index] for index in range(min(len(queue), self._batch))]
                self._sink.store(rows)
                for _ in rows:
                    queue.popleft()
        except StoreError as error:
            self._failed(str(error))
            return False
        except Exception:
            log.exception("storing decisions failed")
            self._failed("a fault of the gateway, see its log")
            return False
        self._worked()
        return True

    def _failed(self, reason: str) -> None:
        if reason != self._reason:
            log.warning("decisions cannot be stored and wait: %s", reason)
        self._reason = reason
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def _worked(self) -> None:
        if self._reason is not None:
            log.warning("decisions are stored again; %d have been dropped since the start", self.dropped)
        self._reason = None
        self._pause_s = self._every_s
