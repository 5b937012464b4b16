"""A SQLite file as the writer's sink: sqlite3 alone, in WAL mode, so that readers and the writer do not wait for each other."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.engines.guard import guarded
from gateway.store import revisions
from gateway.store.record import COLUMNS
from gateway.store.writer import Row, StoreError

_INSERT = f"INSERT INTO decisions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
# Seconds to wait for another writer before saying that the database is locked.
_BUSY_S = 1.0
_MIGRATION_S = 60.0


class SqliteFile:
    """The decisions in `file`, which is made, with its schema, when it is not there (its folder is not)."""

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

    def store(self, rows: Sequence[Row]) -> None:
        """See Sink.store."""
        connection = self._connection
        if connection is None:
            raise StoreError("the database is not open")
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_INSERT, rows)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()  # which rolls back; the next attempt starts afresh
            raise StoreError(str(error)) from None

    def close(self) -> None:
        """See Sink.close."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if not self._file.exists() or self._is_behind():
            self._migrate()
        self._identity = self._stat()
        connection = self._connect()
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # A commit survives the process; the newest may not survive the machine, which is no more than the queue risks.
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        # By URI, so that a missing file is an error and not an empty database.
        return sqlite3.connect(f"{self._file.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_S, isolation_level=None)

    def _is_behind(self) -> bool:
        """Whether the schema is older than this version's. What a newer version made is fit for this one too (migrations/README.md)."""
        connection = self._connect()
        try:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return True  # no such table
        finally:
            connection.close()
        known = revisions.known()
        return found is None or (found[0] in known and found[0] != known[-1])

    def _migrate(self) -> None:
        """In a process of its own: SQLAlchemy and Alembic would weigh on this one for ever."""
        command = guarded([sys.executable, "-P", "-m", "gateway.store.migrate", "--url", f"sqlite:///{self._file.absolute()}"])
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MIGRATION_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise StoreError("the migration did not end") from None
        except OSError as error:
            raise StoreError(f"the migration cannot be started: {error.strerror}") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise StoreError(f"the schema cannot be brought up: {said[-1] if said else f'status {done.returncode}'}")

    def _stat(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
