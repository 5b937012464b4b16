"""Asking either kind of database: in threads, in time, all or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, insert, select, text

from gateway.store.database import Database
from gateway.store.tables import audit
from gateway.store.urls import PostgresUrl, SqliteUrl
from gateway.store.writer import StoreError
from tests.store.making import decision, fill
from tests.support.postgres import Server
from tests.support.stored import Place, PostgresPlace, SqlitePlace
from tests.support.waiting import until


def note(connection: Connection, id_: str) -> None:
    connection.execute(insert(audit).values(id=id_, created=1.0, key_name="k", action="a", target="t"))


def noted(connection: Connection) -> list[str]:
    return list(connection.execute(select(audit.c.id).order_by(audit.c.id)).scalars())


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Another program holds everything."""
    if isinstance(place, SqlitePlace):
        with contextlib.closing(sqlite3.connect(place.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
        return
    with contextlib.closing(psycopg.connect(place.url)) as another:
        another.execute("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
        yield


def forever(connection: Connection) -> None:
    """A question that takes very long."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_sleep(1000)"))
    else:
        connection.execute(text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"))


async def test_a_question_and_its_answer(asked: Database) -> None:
    assert await asked.read(noted) == []
    await asked.run(lambda connection: note(connection, "a"))
    assert await asked.read(noted) == ["a"]


async def test_all_or_nothing(asked: Database) -> None:
    """And what the question itself raises comes through."""

    def half(connection: Connection) -> None:
        note(connection, "a")
        raise KeyError("b")

    with pytest.raises(KeyError, match="b"):
        await asked.run(half)
    assert await asked.read(noted) == []


async def test_what_the_database_refuses(asked: Database) -> None:
    """No value that was sent stands in the message, nor in what led to it."""

    def twice(connection: Connection) -> None:
        note(connection, "SECRET")
        note(connection, "SECRET")

    with pytest.raises(StoreError) as refused:
        await asked.run(twice)
    assert "SECRET" not in f"{refused.value} {refused.value.detail}"
    assert refused.value.__suppress_context__
    assert await asked.read(noted) == []


async def test_the_loop_goes_on_meanwhile(asked: Database) -> None:
    """A question waits for nothing but its answer, and is in a thread of its own."""
    begun, go = threading.Event(), threading.Event()

    def work(connection: Connection) -> str:
        begun.set()
        assert go.wait(30)
        return threading.current_thread().name

    asking = asyncio.create_task(asked.run(work))
    await until(begun.is_set, "it has begun")
    assert await asked.read(noted) == [], "another one is answered beside it"
    go.set()
    assert (await asking).startswith("trilemma-database")


async def test_a_locked_database(asked: Database, place: Place) -> None:
    """Who writes waits, but not for longer than was said; SQLite's readers do not even wait."""
    with locked(place):
        with pytest.raises(StoreError, match=r"database is locked|the database did not answer in time"):
            await asked.run(lambda connection: note(connection, "a"), within_s=0.3)
        if isinstance(place, SqlitePlace):
            assert await asked.read(noted) == []
        waiting = asyncio.create_task(asked.run(lambda connection: note(connection, "b")))
        await asyncio.sleep(0)
    await waiting
    assert await asked.read(noted) == ["b"]


async def test_a_question_that_takes_too_long_is_ended(asked: Database) -> None:
    """In the database itself: its thread is free again."""
    for _ in range(3):
        with pytest.raises(StoreError, match=r"^the database did not answer in time$"):
            await asked.read(forever, within_s=0.2)
    assert await asked.read(noted) == []


async def test_more_questions_than_may_wait(place: Place) -> None:
    asked = Database(place.location, threads=1, waiting=2)
    go = threading.Event()
    begun = threading.Event()

    def slow(_connection: Connection) -> bool:
        begun.set()
        return go.wait(30)

    running = asyncio.create_task(asked.run(slow))
    await until(begun.is_set, "one is at work")
    waiting = [asyncio.create_task(asked.read(noted)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="too many questions wait"):
        await asked.read(noted)
    go.set()
    assert await asyncio.gather(running, *waiting) == [True, [], []]
    await asked.close()


async def test_a_question_that_nobody_waits_for_any_more_is_not_asked(place: Place) -> None:
    asked = Database(place.location, threads=1)
    go, begun = threading.Event(), threading.Event()

    def slow(_connection: Connection) -> bool:
        begun.set()
        return go.wait(30)

    running = asyncio.create_task(asked.run(slow))
    await until(begun.is_set, "one is at work")
    left = asyncio.create_task(asked.run(lambda connection: note(connection, "a")))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    go.set()
    await running
    assert await asked.read(noted) == []
    await asked.close()


async def test_closing(asked: Database) -> None:
    """Also when nothing was ever asked; and its threads end."""
    await asked.read(noted)
    await asked.close()
    await asked.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trilemma-database")]


async def test_closing_does_not_wait_for_a_database_that_hangs(place: Place) -> None:
    asked = Database(place.location, threads=1)
    go, begun = threading.Event(), threading.Event()

    def hangs(_connection: Connection) -> None:
        begun.set()
        assert go.wait(30)

    running = asyncio.create_task(asked.run(hangs))
    await until(begun.is_set, "it is at work")
    began = time.monotonic()
    await asked.close(within_s=0.05)
    assert time.monotonic() - began < 10
    go.set()
    await running
    await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("trilemma-database")], "its thread ends")
    gc.collect()  # a connection that was left open would be told of


async def test_a_database_that_is_gone(tmp_path: Path) -> None:
    """No empty one is made in its place."""
    asked = Database(SqliteUrl(tmp_path / "nowhere.db"))
    with pytest.raises(StoreError, match="unable to open database file"):
        await asked.read(noted)
    assert not (tmp_path / "nowhere.db").exists()
    await asked.close()


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    asked = Database(PostgresUrl(f"postgresql://user:hunter2@/trilemma?host={tmp_path}"))
    with pytest.raises(StoreError, match=r"^the database cannot be reached$") as failed:
        await asked.read(noted)
    assert "hunter2" not in failed.value.detail
    await asked.close()


async def test_a_file_that_is_replaced(tmp_path: Path, database: Path) -> None:
    asked = Database(SqliteUrl(database))
    await asked.run(lambda connection: note(connection, "a"))
    database.unlink()  # noqa: ASYNC240 (nothing else runs)
    with pytest.raises(StoreError):
        await asked.read(noted)
    await asked.close()


async def test_connections_that_broke_are_replaced(postgres: PostgresPlace) -> None:
    asked = Database(postgres.location)
    await asked.run(lambda connection: note(connection, "a"))
    postgres.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'trilemma'")
    assert await asked.read(noted) == ["a"]
    await asked.close()


@pytest.fixture
async def unmigrated(server: Server) -> AsyncIterator[Database]:
    name = server.create(empty=True)
    asked = Database(PostgresUrl(server.url(name)))
    yield asked
    await asked.close()
    server.drop(name)


async def test_before_the_schema_is_there(unmigrated: Database, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    other = Database(SqliteUrl(tmp_path / "empty.db"))
    with pytest.raises(StoreError, match="no such table"):
        await other.read(noted)
    with pytest.raises(StoreError, match="the database lacks the schema"):
        await unmigrated.read(noted)
    await other.close()


async def test_scrubbing(asked: Database, place: Place) -> None:
    """What was deleted is nowhere in SQLite's files; PostgreSQL needs nothing."""
    fill(place, decision("a", tenant="TENANTCANARY"))
    await asked.run(lambda connection: connection.execute(text("DELETE FROM decisions")))
    await asked.scrub()
    assert b"TENANTCANARY" not in place.everything()


LOADED = """
import asyncio, sys
from pathlib import Path
from gateway.store import audit, erasure, export, keys, queries, versions
from gateway.store.database import Database
from gateway.store.urls import SqliteUrl

def loaded():
    return sorted({"sqlalchemy", "alembic", "psycopg"} & set(sys.modules))

async def main():
    database = Database(SqliteUrl(Path(sys.argv[1])))
    print(loaded())
    print(await database.read(keys.keys_version), loaded())
    await database.close()

asyncio.run(main())
"""


async def test_nothing_is_loaded_before_the_first_question(database: Path) -> None:
    run: list[Any] = [sys.executable, "-c", LOADED, database]
    done = await asyncio.to_thread(subprocess.run, run, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n0 ['sqlalchemy']\n", "")
