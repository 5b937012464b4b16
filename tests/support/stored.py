"""Looking into a store from outside: past SQLAlchemy, and past all that is tested."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.rows import dict_row

from gateway.store.postgres import PostgresDatabase
from gateway.store.sqlite import SqliteFile
from gateway.store.urls import Location, PostgresUrl, SqliteUrl
from gateway.store.writer import Sink
from tests.support.waiting import until

Stored = dict[str, Any]


class Place(Protocol):
    """A database of either kind."""

    @property
    def url(self) -> str:
        """As a configuration names it."""
        ...

    @property
    def location(self) -> Location:
        """Where that leads."""
        ...

    def sink(self) -> Sink:
        """A new way for the writer."""
        ...

    def rows(self, table: str = "decisions") -> list[Stored]:
        """In the order in which they were stored; none when there is no such table yet."""
        ...

    def execute(self, sql: str) -> None:
        """Changes something, behind everybody's back."""
        ...

    def everything(self) -> bytes:
        """All that is kept, as a thief would find it."""
        ...


class SqlitePlace:
    """A file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.location = SqliteUrl(file)
        self.url = f"sqlite:///{file}"

    def sink(self) -> Sink:
        """See Place."""
        return SqliteFile(self.file)

    def rows(self, table: str = "decisions") -> list[Stored]:
        """See Place."""
        return stored(self.file, table) if self.file.exists() else []

    def execute(self, sql: str) -> None:
        """See Place."""
        with contextlib.closing(sqlite3.connect(self.file, timeout=10)) as connection, connection:
            connection.executescript(sql)

    def everything(self) -> bytes:
        """See Place: the file and whatever SQLite keeps beside it."""
        return b"".join(file.read_bytes() for file in self.file.parent.iterdir())


class PostgresPlace:
    """A database of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.location = PostgresUrl(url)

    def sink(self) -> Sink:
        """See Place."""
        return PostgresDatabase(self.location)

    def rows(self, table: str = "decisions") -> list[Stored]:
        """See Place."""
        with contextlib.closing(psycopg.connect(self.url, row_factory=dict_row)) as connection:
            try:
                return connection.execute(f"SELECT * FROM {table} ORDER BY ctid").fetchall()  # type: ignore[call-overload, no-any-return]
            except psycopg.errors.UndefinedTable:
                return []

    def execute(self, sql: str) -> None:
        """See Place."""
        with contextlib.closing(psycopg.connect(self.url, autocommit=True)) as connection:
            connection.execute(sql)  # type: ignore[call-overload]

    def everything(self) -> bytes:
        """See Place: every row of every table."""
        with contextlib.closing(psycopg.connect(self.url)) as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            rows = [row for (name,) in names for row in connection.execute(f"SELECT t::text FROM {name} t").fetchall()]  # type: ignore[call-overload]
            return "".join(text for (text,) in rows).encode()


def stored(file: Path, table: str = "decisions") -> list[Stored]:
    """The rows of a table of a SQLite file, in the order in which they were stored; none when there is no such table yet."""
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return []


async def until_stored(place: Place | Path, count: int, table: str = "decisions") -> list[Stored]:
    """The rows, once there are that many; fails when there are more, or never so many."""
    looked = SqlitePlace(place) if isinstance(place, Path) else place
    rows: list[Stored] = []

    def enough() -> bool:
        rows[:] = looked.rows(table)
        return len(rows) >= count

    await until(enough, f"{count} rows are stored", 20)
    assert len(rows) == count
    return rows
