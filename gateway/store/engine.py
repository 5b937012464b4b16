"""SQLAlchemy's way to the database, for what asks and what migrates; what serves never loads this."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError

from gateway.store.urls import Location, SqliteUrl
from gateway.store.writer import StoreError

# Any number, as long as every version of Trilemma has the same.
_TURN: Final = 7_410_652_871
# SQLite looks at the clock each time it has done so many steps of its machine: about a millisecond's work.
_STEPS: Final = 20_000


class Begin(NamedTuple):
    """How a transaction begins; the execution option `begin` of a connection.

    writes: it takes SQLite's write lock at once, for a lock that is taken later may come too late to wait for. alone: nobody else who asks
    for that may be at work. until: time.monotonic() after which the database gives up.
    """

    writes: bool = True
    alone: bool = False
    until: float | None = None


def engine(location: Location, *, busy_s: float, create: bool = False, size: int = 1) -> Engine:
    """An engine over the database; connections begin their transactions as `Begin` says.

    busy_s: how long to wait for somebody's lock. create: a SQLite file that is not there is made. size: connections that are kept.
    """
    if isinstance(location, SqliteUrl):
        return _sqlite(location, busy_s, create=create)
    return _postgres(location, busy_s, size)


def failure(error: DBAPIError) -> StoreError:
    """Why the database did not do it."""
    if isinstance(error.orig, sqlite3.Error):
        return StoreError("the database did not answer in time" if str(error.orig) == "interrupted" else str(error.orig))
    import psycopg  # an extra

    from gateway.store.postgres import failure as postgres_failure

    assert isinstance(error.orig, psycopg.Error), "there are two drivers"
    return postgres_failure(error.orig)


def _sqlite(location: SqliteUrl, busy_s: float, *, create: bool) -> Engine:
    # By URI, so that a missing file is an error and not an empty database.
    uri = f"{location.file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"

    def connect() -> sqlite3.Connection:
        # sqlite3 opens no transaction by itself: see `begin`.
        connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None)
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten, too
        return connection

    def begin(connection: Connection) -> None:
        how = _how(connection)
        if how.until is not None:
            _give_up_at(connection, how.until)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if how.writes else "BEGIN")

    return _made(URL.create("sqlite"), connect, begin, poolclass=NullPool)


def _postgres(location: Any, busy_s: float, size: int) -> Engine:
    from gateway.store.postgres import connect  # an extra

    def begin(connection: Connection) -> None:
        how = _how(connection)
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(busy_s * 1e3)}")
        if how.until is not None:
            left_ms = max(1, int((how.until - time.monotonic()) * 1e3))
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {left_ms}")
        if how.alone:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TURN})")

    def open_() -> Any:
        connection = connect(location)
        connection.autocommit = False
        return connection

    return _made(URL.create("postgresql+psycopg"), open_, begin, poolclass=QueuePool, pool_size=size, max_overflow=0, pool_pre_ping=True)


def _made(url: URL, connect: Callable[[], Any], begin: Callable[[Connection], None], **pool: Any) -> Engine:
    # No message shows a parameter: they hold digests and hashes.
    made = create_engine(url, creator=connect, hide_parameters=True, **pool)
    event.listen(made, "begin", begin)
    return made


def _how(connection: Connection) -> Begin:
    how: Begin = connection.get_execution_options().get("begin", Begin())
    return how


def _give_up_at(connection: Connection, until: float) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.execute(f"PRAGMA busy_timeout = {max(0, int((until - time.monotonic()) * 1e3))}")
    driver.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
