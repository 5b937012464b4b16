"""The way to the database for what serving has to know."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.access.link import Link, NoSchema, Session
from gateway.store.urls import PostgresUrl, SqliteUrl
from gateway.store.writer import StoreError
from tests.support.stored import Place, PostgresPlace
from tests.support.waiting import until

ROW = "INSERT INTO leases (subject, kind, \"window\", holder, amount, expires) VALUES (?, 'requests', 0, ?, 1, 0)"
COUNT = "SELECT COUNT(*) FROM leases WHERE subject = ?"


def add(session: Session, subject: str, holder: str = "a") -> None:
    session.run(ROW, subject, holder)


@pytest.fixture
async def link(place: Place) -> AsyncIterator[Link]:
    found = Link(place.location, 10)
    yield found
    await found.close()


async def test_what_is_done_is_done_for_all_to_see(link: Link, place: Place) -> None:
    await link.run(lambda session: add(session, "it's %s ? {0}"))

    assert await link.read(lambda session: session.rows(COUNT, "it's %s ? {0}")) == [(1,)]
    assert [row["subject"] for row in place.rows("leases")] == ["it's %s ? {0}"]


async def test_what_fails_in_the_middle_is_not_done_and_the_next_goes_on(link: Link, place: Place) -> None:
    def half(session: Session) -> None:
        add(session, "half")
        raise ValueError("in the middle")

    def twice(session: Session) -> None:
        add(session, "twice")
        add(session, "twice")

    with pytest.raises(ValueError, match="in the middle"):
        await link.run(half)
    with pytest.raises(StoreError):
        await link.run(twice)
    await link.run(lambda session: add(session, "whole"))
    assert [row["subject"] for row in place.rows("leases")] == ["whole"]


async def test_a_table_or_a_database_that_is_not_there_yet_is_told_apart(link: Link, place: Place, tmp_path: Path) -> None:
    place.execute("DROP TABLE leases")
    with pytest.raises(NoSchema):
        await link.read(lambda session: session.rows(COUNT, "x"))
    nowhere = Link(SqliteUrl(tmp_path / "nowhere.db"), 5)
    with pytest.raises(NoSchema):
        await nowhere.read(lambda session: session.now())
    await nowhere.close()


async def test_whoever_is_alone_with_a_subject_is_waited_for_by_those_who_want_it_too(link: Link, place: Place) -> None:
    second = Link(place.location, 10)
    holds, ends = threading.Event(), threading.Event()
    seen: list[int] = []

    def first(session: Session) -> None:
        session.alone([7, 5])
        holds.set()
        assert ends.wait(10)
        add(session, "x")

    def then(session: Session) -> None:
        session.alone([5, 9])
        seen.append(session.rows(COUNT, "x")[0][0])

    one = asyncio.create_task(link.run(first))
    await until(holds.is_set, "the first has it")
    other = asyncio.create_task(second.run(then))
    await asyncio.sleep(0.05)
    assert seen == []
    ends.set()
    await asyncio.gather(one, other)
    assert seen == [1]
    await second.close()


async def test_on_postgresql_others_do_not_wait(postgres: PostgresPlace) -> None:
    one, other = Link(postgres.location, 10), Link(postgres.location, 10)
    ends = threading.Event()

    def first(session: Session) -> None:
        session.alone([1])
        assert ends.wait(10)

    waits = asyncio.create_task(one.run(first))
    await other.run(lambda session: session.alone([2]))
    ends.set()
    await waits
    await one.close()
    await other.close()


@contextlib.contextmanager
def held(place: Place) -> Iterator[None]:
    """Nobody can write to `leases` until the block ends."""
    if isinstance(place.location, SqliteUrl):
        with contextlib.closing(sqlite3.connect(place.location.file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
        return
    import psycopg

    with contextlib.closing(psycopg.connect(place.location.url)) as other:
        other.execute("LOCK TABLE leases")
        yield


async def test_a_database_that_hangs_is_given_up_in_time_and_used_again_afterwards(place: Place) -> None:
    link = Link(place.location, 0.2)
    with held(place):
        for _ in range(3):
            with pytest.raises(StoreError):
                await link.run(lambda session: add(session, "late"))
    added = 0
    async with asyncio.timeout(10):
        while not added:
            with contextlib.suppress(StoreError):  # what came too late is done first
                await link.run(lambda session: add(session, "after"))
                added += 1
    assert "after" in [row["subject"] for row in place.rows("leases")]
    await link.close()


async def test_a_connection_that_broke_is_opened_again(postgres: PostgresPlace) -> None:
    link = Link(postgres.location, 10)
    await link.run(lambda session: add(session, "before"))
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'trilemma'"
    )
    with pytest.raises(StoreError):
        await link.run(lambda session: add(session, "broken"))
    await link.run(lambda session: add(session, "after"))
    assert [row["subject"] for row in postgres.rows("leases")] == ["before", "after"]
    await link.close()


async def test_a_file_that_was_replaced_is_noticed(database: Path, migrated: Path) -> None:
    link = Link(SqliteUrl(database), 10)
    await link.run(lambda session: add(session, "x"))
    await asyncio.to_thread(database.unlink)
    shutil.copy(migrated, database)
    assert await link.read(lambda session: session.rows(COUNT, "x")) == [(0,)]
    await link.close()


async def test_a_server_that_cannot_be_reached_shows_no_secret(tmp_path: Path) -> None:
    link = Link(PostgresUrl(f"postgresql://u:canary-pw@/db?host={tmp_path}"), 10)
    with pytest.raises(StoreError) as caught:
        await link.read(lambda session: session.now())
    assert "canary-pw" not in f"{caught.value} {caught.value.detail}"
    await link.close()


async def test_a_turn_is_one_transaction_s_at_a_time(place: Place) -> None:
    """Who finds it taken is told, and waits for nobody; in SQLite whoever comes second does not get so far."""
    one, other = Link(place.location, 10), Link(place.location, 1)
    taken, free = threading.Event(), threading.Event()

    def holds(session: Session) -> bool:
        mine = session.mine(7)
        taken.set()
        free.wait(10)
        return mine

    held = asyncio.create_task(one.run(holds))
    await asyncio.to_thread(taken.wait, 10)
    if isinstance(place, PostgresPlace):
        assert await other.run(lambda session: (session.mine(7), session.mine(8))) == (False, True)
    else:
        with pytest.raises(StoreError):
            await other.run(lambda session: session.mine(7))
    free.set()
    assert await held
    assert await other.run(lambda session: session.mine(7))
    for link in (one, other):
        await link.close()


async def test_bytes_come_back_as_they_were(link: Link, place: Place) -> None:
    place.execute("CREATE TABLE things (n INTEGER, data " + ("BYTEA" if isinstance(place, PostgresPlace) else "BLOB") + ")")
    await link.run(lambda session: session.run("INSERT INTO things VALUES (?, ?)", 1, b"\x00\xff?%s"))
    assert await link.read(lambda session: [bytes(data) for (data,) in session.rows("SELECT data FROM things")]) == [b"\x00\xff?%s"]
