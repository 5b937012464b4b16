"""A gateway whose database is locked, full or gone: requests are served as ever, /ready tells, and afterwards nothing is missing."""

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
import pytest

from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.running import config_for, running
from tests.support.stored import until_stored


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
    """Waits until /ready tells of that trouble (a regular expression), or of none; its status is unchanged and the process healthy."""
    degraded: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while True:
                answer = await client.get("/ready")
                assert (answer.status_code, answer.json()["status"]) == (200, "ready"), answer.text
                assert (await client.get("/health")).status_code == 200
                degraded = answer.json()["degraded"]
                if len(degraded) == (by is not None) and all(re.fullmatch(by or "", each) for each in degraded):
                    return
                await asyncio.sleep(0.02)
    raise AssertionError(f"it says {degraded}, not {by}")


async def test_all_is_well(client: httpx.AsyncClient) -> None:
    await until_degraded(client, None)


async def test_locked(client: httpx.AsyncClient, database: Path) -> None:
    before = await chats(client, 2)
    await until_stored(database, 2)
    with locked(database):
        during = await chats(client, 3)
        await until_degraded(client, r"storage: database is locked \(3 decisions wait\)")
        during += await chats(client, 1)
    rows = await until_stored(database, 6)
    assert [row["id"] for row in rows] == before + during
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
        await until_degraded(client, r"storage: database is locked \(1 decisions wait\)")
    await chats(client, 200)
    await until_degraded(client, r"storage: database or disk is full \(\d+ decisions wait\)")
    room.clear()
    await until_stored(database, 202)
    await until_degraded(client, None)


async def test_its_folder_is_taken_away_and_comes_back(client: httpx.AsyncClient, database: Path) -> None:
    """A volume that is unmounted, say. What comes back is empty, and gets its schema."""
    await chats(client, 1)
    await until_stored(database, 1)
    shutil.rmtree(database.parent)
    await until_degraded(client, r"storage: .*: the folder of the database is not there \(0 decisions wait\)")
    ids = await chats(client, 2)
    database.parent.mkdir()
    assert [row["id"] for row in await until_stored(database, 2)] == ids
    await until_degraded(client, None)


async def test_its_folder_is_not_there_at_the_start(mock: MockBackend, tmp_path: Path) -> None:
    database = tmp_path / "volume/decisions.db"
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    async with running(config_for(backends, storage={"url": f"sqlite:///{database}"}), tmp_path) as run, run.client() as client:
        ids = await chats(client, 2)
        await until_degraded(client, r"storage: .*: the folder of the database is not there \(2 decisions wait\)")
        database.parent.mkdir()
        assert [row["id"] for row in await until_stored(database, 2)] == ids
        await until_degraded(client, None)


async def test_without_storage_nothing_is_kept(mock: MockBackend, tmp_path: Path) -> None:
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    async with running(config_for(backends), tmp_path) as run, run.client() as client:
        await chats(client, 1)
        await until_degraded(client, None)
    assert not any(b"SQLite format 3" in file.read_bytes() for file in tmp_path.iterdir())  # noqa: ASYNC240 (nothing is served any more)
