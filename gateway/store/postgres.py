"""A PostgreSQL database as the writer's sink: psycopg 3 alone (extra `postgres`), rows by COPY.

A batch is copied into a temporary table and inserted from there: copying alone could not pass over rows that are there already. Of 1,000
rows that takes half the CPU of inserting one by one in a pipeline.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from gateway.store import joining, revisions
from gateway.store.columns import COLUMNS, DECISION
from gateway.store.sqlstates import reason
from gateway.store.upgrade import bring_up
from gateway.store.urls import PostgresUrl
from gateway.store.writer import Item, Row, RowsRefused, StoreError, by_table

_DEFAULTS: Mapping[str, str | int] = {
    "application_name": "trilemma",
    "connect_timeout": 5,
    # A server that vanishes without a word is noticed.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def _sql(text: str) -> LiteralString:
    """SQL made of the names in this package alone."""
    return text


_NEW: Mapping[str, LiteralString] = {
    table: _sql(f"CREATE TEMPORARY TABLE IF NOT EXISTS new_{table} (LIKE {table}) ON COMMIT DELETE ROWS") for table in COLUMNS
}
_COPY: Mapping[str, LiteralString] = {
    table: _sql(f"COPY new_{table} ({', '.join(columns)}) FROM STDIN") for table, columns in COLUMNS.items()
}
_INSERT: Mapping[str, LiteralString] = {
    table: _sql(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns)} FROM new_{table} ON CONFLICT DO NOTHING")  # noqa: S608
    for table, columns in COLUMNS.items()
}
# Replicas tidy up at once, and take different rows.
_EXPIRE: Mapping[str, LiteralString] = {
    table: _sql(
        f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("  # noqa: S608
        f"SELECT ctid FROM {table} WHERE {id_} < %s ORDER BY {id_} LIMIT %s FOR UPDATE SKIP LOCKED))"
    )
    for table, id_ in DECISION.items()
}
_FORGET, _OUTCOME, _LEARN, _NEXT = (
    _sql(text.replace("?", "%s")) for text in (joining.FORGET, joining.OUTCOME, joining.LEARN, joining.NEXT)
)
_SWEEP = tuple(_sql(text.replace("?", "%s")) for text in joining.SWEEP)
# Of this transaction alone: with a pooler in between, the next one may have another connection.
_SETTINGS = _sql("SET LOCAL statement_timeout = 10000; SET LOCAL client_min_messages = warning")


def connect(location: PostgresUrl) -> psycopg.Connection:
    """A new connection, of which each statement is a transaction unless one is begun. Raises psycopg.Error."""
    given = conninfo_to_dict(location.url)
    options = {name: value for name, value in _DEFAULTS.items() if name not in given}
    # Nothing prepared: a pooler in between may give each transaction another connection.
    return psycopg.connect(location.url, autocommit=True, prepare_threshold=None, **options)  # type: ignore[arg-type]


def failure(error: psycopg.Error) -> StoreError:
    """What the error means. What the client's own library says goes to the log as well; a server's words may hold values."""
    return StoreError(reason(error.sqlstate), str(error).strip().partition("\n")[0] if error.sqlstate is None else "")


def is_refusal(error: psycopg.Error) -> bool:
    """Whether it speaks against a row, not the database: a value (22), a constraint (23), a size (54), or what was not even sent."""
    if error.sqlstate is None:
        return isinstance(error, (psycopg.DataError, psycopg.ProgrammingError))
    return error.sqlstate[:2] in ("22", "23", "54")


class PostgresDatabase:
    """The rows in a database, which must be there; its schema need not."""

    def __init__(self, location: PostgresUrl) -> None:
        self._location = location
        self._connection: psycopg.Connection | None = None

    def ready(self) -> None:
        """See Sink.ready. A server that closed the connection is noticed without a question to it."""
        if self._connection is not None and _is_open(self._connection):
            return
        self.close()
        try:
            if revisions.is_behind(self._revision()):
                bring_up(self._location.url)
            self._connection = connect(self._location)
        except psycopg.Error as error:
            raise failure(error) from None

    def store(self, items: Sequence[Item]) -> None:
        """See Sink.store."""
        tables = by_table(items, COLUMNS)
        connection = self._opened()
        try:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(_sql("; ").join([_SETTINGS, *(_NEW[table] for table in tables)]))
                for table, rows in tables.items():
                    with cursor.copy(_COPY[table]) as copy:
                        for row in rows:
                            copy.write_row(row)
                    cursor.execute(_INSERT[table])
                _join(cursor, tables.get("feedback", ()), tables.get("outcomes", ()))
        except psycopg.Error as error:
            if is_refusal(error) and not connection.closed:
                raise RowsRefused(type(error).__name__) from None
            self.close()
            raise failure(error) from None
        except (UnicodeError, OverflowError) as error:
            raise RowsRefused(type(error).__name__) from None

    def expire(self, table: str, before: str, most: int) -> int:
        """See Sink.expire."""
        connection = self._opened()
        try:
            with connection.transaction():
                connection.execute(_SETTINGS)
                return connection.execute(_EXPIRE[table], (before, most)).rowcount
        except psycopg.Error as error:
            self.close()
            raise failure(error) from None

    def sweep(self, after: str, before: str, most: int) -> str:
        """See Sink.sweep."""
        connection = self._opened()
        try:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(_SETTINGS)
                found = cursor.execute(_NEXT, (after, before, most)).fetchone()
                assert found is not None, "an aggregate is always there"
                last, count = found
                for statement in _SWEEP if count else ():
                    cursor.execute(statement, (after, last))
        except psycopg.Error as error:
            self.close()
            raise failure(error) from None
        return str(last) if count == most else before

    def close(self) -> None:
        """See Sink.close."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> psycopg.Connection:
        if self._connection is None:
            raise StoreError("the database is not open")
        return self._connection

    def _revision(self) -> str | None:
        with connect(self._location) as connection:
            try:
                found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            except psycopg.errors.UndefinedTable:
                return None
            return None if found is None else str(found[0])


def _join(cursor: psycopg.Cursor, said: Sequence[Row], found: Sequence[Row]) -> None:
    """See joining.py. said: rows of `feedback`; found: rows of `outcomes`."""
    now = time.time()
    about = joining.said_of(said)
    for id_ in joining.too_late(about, now):
        cursor.execute(_FORGET, (id_,))
    for each in about:
        # The first time waits for whoever stores another word on the same decision; only the second one surely sees that.
        cursor.execute(_OUTCOME, each)
        cursor.execute(_OUTCOME, each)
    for each in sorted({*about, *joining.found_of(found)}):
        cursor.execute(_LEARN, (now, *each))


def _is_open(connection: psycopg.Connection) -> bool:
    """Whether the server still holds it, as far as it has said."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    try:
        while poll.poll(0):  # last words come before the end does
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True
