"""Link to a PostgreSQL database, through psycopg (extra `postgres`). Who is alone with a subject holds an advisory lock on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from gateway.access.link import NoSchema, Session, Value
from gateway.store.postgres import connect, failure
from gateway.store.urls import PostgresUrl

# Any number, as long as every version of Trilemma has the same.
_LOCKS: Final = 1_953_655_410


class Postgres:
    """See Driver."""

    def __init__(self, location: PostgresUrl, within_s: float) -> None:
        self._location = location
        self._limit_ms = int(within_s * 1e3)
        self._connection: psycopg.Connection | None = None

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Session]:  # noqa: ARG002 (see Driver)
        """See Driver."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._location)
            connection = self._connection
            # Each statement sees what was committed before it, so behind the lock nothing is missed.
            connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {self._limit_ms}".encode())
            try:
                yield _Session(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except psycopg.Error as error:
            self.close()
            if isinstance(error, psycopg.errors.UndefinedTable):
                raise NoSchema("the database lacks the schema") from None
            raise failure(error) from None

    def close(self) -> None:
        """See Driver."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Session:
    """See link.Session."""

    taking = "FOR UPDATE SKIP LOCKED"

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def mine(self, turn: int) -> bool:
        return bool(self.rows("SELECT pg_try_advisory_xact_lock(?)", turn)[0][0])

    def alone(self, subjects: Sequence[int]) -> None:
        # In one order for all, so that nobody waits for somebody who waits.
        numbers = sorted(set(subjects))
        self._connection.execute("SELECT pg_advisory_xact_lock(%s, n) FROM unnest(%s::int[]) AS n", (_LOCKS, numbers))

    def rows(self, sql: str, *values: Value) -> list[Any]:
        return self._connection.execute(sql.replace("?", "%s").encode(), values).fetchall()

    def run(self, sql: str, *values: Value) -> None:
        self._connection.execute(sql.replace("?", "%s").encode(), values)

    def now(self) -> float:
        return float(self.rows("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])
