"""Link to a SQLite file, through sqlite3. Whoever writes is alone with the whole of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gateway.access.link import NoSchema, Session, Value
from gateway.store.urls import SqliteUrl
from gateway.store.writer import StoreError

# Part of the time that one thing may take in which a lock is waited for.
_BUSY: Final = 0.75


class Sqlite:
    """See Driver. clock: seconds since 1970."""

    def __init__(self, location: SqliteUrl, within_s: float, clock: Callable[[], float] = time.time) -> None:
        self._file = location.file
        self._busy_s = within_s * _BUSY
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Session]:
        """See Driver."""
        try:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield _Session(connection, self._clock)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR and "no such table" in str(error):
                raise NoSchema("the database lacks the schema") from None
            raise StoreError(str(error)) from None
        except FileNotFoundError:
            self.close()
            raise NoSchema("there is no such database") from None
        except OSError as error:
            self.close()
            raise StoreError(f"the database cannot be looked at: {error.strerror}") from None

    def close(self) -> None:
        """See Driver."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        """A file that was replaced is noticed: nobody else counts in the old one."""
        found = self._file.stat()
        identity = found.st_dev, found.st_ino
        if self._connection is None or identity != self._identity:
            self.close()
            uri = f"{self._file.absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(uri, uri=True, timeout=self._busy_s, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten, too
            self._identity = identity
        return self._connection


class _Session:
    """See link.Session."""

    taking = ""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self.now = clock

    def mine(self, turn: int) -> bool:  # noqa: ARG002 (see Session)
        return True

    def alone(self, subjects: Sequence[int]) -> None:
        pass

    def rows(self, sql: str, *values: Value) -> list[Any]:
        return self._connection.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Value) -> None:
        self._connection.execute(sql, values)
