"""A SQLite file as the writer's sink: sqlite3 alone, in WAL mode, so that readers and the writer do not wait for each other."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.store import joining, revisions
from gateway.store.columns import COLUMNS, DECISION
from gateway.store.upgrade import bring_up
from gateway.store.urls import SqliteUrl
from gateway.store.writer import Item, RowsRefused, StoreError, by_table

_INSERT: Mapping[str, str] = {
    table: f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) ON CONFLICT DO NOTHING"  # noqa: S608
    for table, columns in COLUMNS.items()
}
_EXPIRE: Mapping[str, str] = {
    table: f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {id_} < ? ORDER BY {id_} LIMIT ?)"  # noqa: S608
    for table, id_ in DECISION.items()
}
# Seconds to wait for another writer before saying that the database is locked.
_BUSY_S = 1.0
# What speaks against a row, and not against the database. The others are values that SQLite does not know.
_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError, UnicodeError)


class SqliteFile:
    """The rows in `file`, which is made, with its schema, when it is not there (its folder is not)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def ready(self) -> None:
        """See Sink.ready. A file that was deleted or replaced is noticed: rows must not go where nobody finds them."""
        if self._connection is not None and self._identity == self._stat():
            return
        self.close()
        try:
            self._connection = self._open()
        except sqlite3.Error as error:
            raise StoreError(str(error)) from None
        except OSError as error:
            raise StoreError(f"the database cannot be looked at: {error.strerror}") from None

    def store(self, items: Sequence[Item]) -> None:
        """See Sink.store."""
        rows = by_table(items, _INSERT)
        connection = self._opened()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for table, those in rows.items():
                connection.executemany(_INSERT[table], those)
            now = time.time()
            about = joining.said_of(rows.get("feedback", ()))
            connection.executemany(joining.FORGET, [(id_,) for id_ in joining.too_late(about, now)])
            connection.executemany(joining.OUTCOME, about)
            news = sorted({*about, *joining.found_of(rows.get("outcomes", ()))})
            connection.executemany(joining.LEARN, [(now, *each) for each in news])
            connection.execute("COMMIT")
        except _REFUSALS as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise RowsRefused(_named(error)) from None
        except sqlite3.Error as error:
            self.close()  # which rolls back; the next attempt starts afresh
            raise StoreError(str(error)) from None

    def expire(self, table: str, before: str, most: int) -> int:
        """See Sink.expire."""
        try:
            return self._opened().execute(_EXPIRE[table], (before, most)).rowcount
        except sqlite3.Error as error:
            raise StoreError(str(error)) from None

    def sweep(self, after: str, before: str, most: int) -> str:
        """See Sink.sweep."""
        connection = self._opened()
        try:
            last, count = connection.execute(joining.NEXT, (after, before, most)).fetchone()
            for statement in joining.SWEEP if count else ():
                connection.execute(statement, (after, last))
        except sqlite3.Error as error:
            raise StoreError(str(error)) from None
        return str(last) if count == most else before

    def close(self) -> None:
        """See Sink.close."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError("the database is not open")
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if not self._file.exists() or self._is_behind():
            bring_up(SqliteUrl(self._file).url)
        self._identity = self._stat()
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # A commit survives the process; the newest may not survive the machine, which is no more than the queue risks.
            connection.execute("PRAGMA synchronous = NORMAL")
            # What is deleted is overwritten, too.
            connection.execute("PRAGMA secure_delete = ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        # By URI, so that a missing file is an error and not an empty database.
        return sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_S, isolation_level=None)

    def _is_behind(self) -> bool:
        connection = self._connect()
        try:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return True  # no such table
        finally:
            connection.close()
        return revisions.is_behind(None if found is None else found[0])

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _named(error: Exception) -> str:
    """What is wrong, in words that hold no value. Of SQLite's own only those of a broken constraint are such: they name a column."""
    return str(error) if isinstance(error, sqlite3.IntegrityError) else type(error).__name__
