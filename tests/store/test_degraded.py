"""A gateway whose database is locked, full, stopped or gone: requests are served as ever, /ready tells, and afterwards nothing is missing.

Each request leaves two rows: a decision and its one call.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.postgres import Server, running_server
from tests.support.running import config_for, running
from tests.support.stored import PostgresPlace, SqlitePlace, until_stored


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for between two attempts is not told here: at most half a second, instead of five."""
    monkeypatch.setattr("gateway.store.writer._LONGEST_PAUSE_S", 0.5)


@pytest.fixture
def place(database: Path) -> SqlitePlace:
    """What happens to a file; a server's fate is told at the end."""
    return SqlitePlace(database)


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another program holds the write lock."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def chats(client: httpx.AsyncClient, count: int) -> list[str]:
    """Their decision ids; all must be served."""
    answers = [await client.post(CHAT, json=question()) for _ in range(count)]
    assert [answer.status_code for answer in answers] == [200] * count
    return [answer.headers["x-trilemma-decision-id"] for answer in answers]


async def until_degraded(client: httpx.AsyncClient, by: str | None) -> None:
    """Waits until /admin/config tells of that trouble (a regular expression), or of none. /ready, which anybody may read, tells of it in
    its own words; its status is unchanged and the process healthy."""
    said: tuple[str | None, list[str]] = ("nothing yet", [])
    public = set() if by is None else {"storage: decisions wait"}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while True:
                answer = await client.get("/ready")
                assert (answer.status_code, answer.json()["status"]) == (200, "ready"), answer.text
                assert (await client.get("/health")).status_code == 200
                storage = (await client.get("/admin/config")).json()["storage"]
                error = None if storage is None else storage["error"]
                said = error, answer.json()["degraded"]
                if {each for each in said[1] if each.startswith("storage")} == public and (
                    error is None if by is None else error is not None and re.fullmatch(by, error)
                ):
                    return
                await asyncio.sleep(0.02)
    raise AssertionError(f"it says {said}, not {by}")


async def test_all_is_well(client: httpx.AsyncClient) -> None:
    await until_degraded(client, None)


async def test_locked(client: httpx.AsyncClient, database: Path) -> None:
    before = await chats(client, 2)
    await until_stored(database, 2)
    with locked(database):
        during = await chats(client, 3)
        await until_degraded(client, r"database is locked \(6 rows wait\)")
        during += await chats(client, 1)
    rows = await until_stored(database, 6)
    assert [row["id"] for row in rows] == before + during
    assert [call["decision_id"] for call in await until_stored(database, 6, "calls")] == before + during
    await until_degraded(client, None)


async def test_full(client: httpx.AsyncClient, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection that is opened while `room` is set may not let the file grow beyond so many pages."""
    room: list[int] = [1]
    connect = sqlite3.connect

    def tiny(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        for pages in room:
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    await chats(client, 1)
    await until_stored(database, 1)
    monkeypatch.setattr("gateway.store.sqlite.sqlite3.connect", tiny)
    with locked(database):  # the connection is opened anew after a failure
        await chats(client, 1)
        await until_degraded(client, r"database is locked \(2 rows wait\)")
    await chats(client, 200)
    await until_degraded(client, r"database or disk is full \(\d+ rows wait\)")
    room.clear()
    await until_stored(database, 202)
    await until_degraded(client, None)


async def test_its_folder_is_taken_away_and_comes_back(client: httpx.AsyncClient, database: Path) -> None:
    """A volume that is unmounted, say. What comes back is empty, and gets its schema."""
    await chats(client, 1)
    await until_stored(database, 1)
    shutil.rmtree(database.parent)
    await until_degraded(client, r".*: the folder of the database is not there \(0 rows wait\)")
    ids = await chats(client, 2)
    database.parent.mkdir()
    assert [row["id"] for row in await until_stored(database, 2)] == ids
    await until_degraded(client, None)


async def test_its_folder_is_not_there_at_the_start(mock: MockBackend, tmp_path: Path) -> None:
    database = tmp_path / "volume/decisions.db"
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    async with running(config_for(backends, storage={"url": f"sqlite:///{database}"}), tmp_path) as run, run.client() as client:
        ids = await chats(client, 2)
        await until_degraded(client, r".*: the folder of the database is not there \(4 rows wait\)")
        database.parent.mkdir()
        assert [row["id"] for row in await until_stored(database, 2)] == ids
        await until_degraded(client, None)


async def test_without_storage_nothing_is_kept(mock: MockBackend, tmp_path: Path) -> None:
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    async with running(config_for(backends), tmp_path) as run, run.client() as client:
        await chats(client, 1)
        await until_degraded(client, None)
    assert not any(b"SQLite format 3" in file.read_bytes() for file in tmp_path.iterdir())  # noqa: ASYNC240 (nothing is served any more)


async def test_a_row_that_is_refused_keeps_no_other(client: httpx.AsyncClient, place: SqlitePlace, database: Path) -> None:
    """Somebody has given the database a rule that one row breaks."""
    first = await chats(client, 1)
    await until_stored(database, 1)
    place.execute("CREATE TRIGGER picky BEFORE INSERT ON decisions WHEN NEW.request_id = 'bad' BEGIN SELECT raise(ABORT, 'no'); END")
    bad = await client.post(CHAT, json=question(), headers={"x-request-id": "bad"})
    assert bad.status_code == 200
    later = await chats(client, 3)
    assert [row["id"] for row in await until_stored(database, 4)] == first + later
    assert len(await until_stored(database, 5, "calls")) == 5
    storage = (await client.get("/admin/config")).json()["storage"]
    assert (storage["error"], storage["dropped"]) == (None, 1)


@pytest.fixture
def stopped_and_started() -> Iterator[Server]:
    """A server that a test may stop."""
    with running_server() as server:
        yield server


async def test_a_server_that_is_stopped_and_started_again(mock: MockBackend, stopped_and_started: Server, tmp_path: Path) -> None:
    server = stopped_and_started
    database = PostgresPlace(server.url(server.create()))
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    async with running(config_for(backends, storage={"url": database.url}), tmp_path) as run, run.client() as client:
        ids = await chats(client, 2)
        await until_stored(database, 2)
        await asyncio.to_thread(server.stop)
        ids += await chats(client, 3)
        await until_degraded(client, r"the database cannot be reached \(6 rows wait\)")
        await asyncio.to_thread(server.start)
        assert [row["id"] for row in await until_stored(database, 5)] == ids
        assert len(await until_stored(database, 5, "calls")) == 5
        await until_degraded(client, None)


async def test_a_locked_table(mock: MockBackend, postgres: PostgresPlace, tmp_path: Path) -> None:
    """Somebody changes it, and the rows wait for that."""
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    async with running(config_for(backends, storage={"url": postgres.url}), tmp_path) as run, run.client() as client:
        ids = await chats(client, 1)
        await until_stored(postgres, 1)
        with contextlib.closing(psycopg.connect(postgres.url)) as other:
            other.execute("LOCK TABLE decisions IN SHARE MODE")
            ids += await chats(client, 3)
            assert len(postgres.rows()) == 1
        assert [row["id"] for row in await until_stored(postgres, 4)] == ids
