"""The store of a gateway in a process of its own: killed, stopped, and what it has loaded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psycopg

from gateway.engines.spec import free_port
from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.engine import Started, trilemma
from tests.support.running import KEY, config_for
from tests.support.stored import PostgresPlace, stored, until_stored
from tests.support.waiting import until


@contextlib.asynccontextmanager
async def serving(mock: MockBackend, database: Path | str, folder: Path) -> AsyncIterator[tuple[Started, httpx.AsyncClient]]:
    """`trilemma serve`, ready, and a client of it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
    storage = {"url": database if isinstance(database, str) else f"sqlite:///{database}", "keep_days": 1}
    config = config_for(backends, server={"port": port}, storage=storage)
    file = folder / "trilemma.json"
    await asyncio.to_thread(file.write_text, json.dumps(config))
    with trilemma("serve", "--config", file, folder=folder, url=url, key=KEY) as started:
        await asyncio.to_thread(started.until_answers, "/ready")
        async with httpx.AsyncClient(base_url=url, headers=started.headers, timeout=30) as client:
            yield started, client


async def chats(client: httpx.AsyncClient, count: int, at_once: int = 1) -> list[str]:
    """Their decision ids."""
    turns = asyncio.Semaphore(at_once)

    async def chat() -> str:
        async with turns:
            answer = await client.post(CHAT, json=question())
        assert answer.status_code == 200, answer.text
        id_: str = answer.headers["x-trilemma-decision-id"]
        return id_

    return await asyncio.gather(*(chat() for _ in range(count)))


async def test_a_killed_gateway_loses_at_most_what_had_just_come(mock: MockBackend, database: Path, tmp_path: Path) -> None:
    async with serving(mock, database, tmp_path) as (started, client):
        kept = await chats(client, 20)
        await until_stored(database, 20)
        at_risk = await chats(client, 5)
        started.process.kill()
        started.process.wait(30)
    found = [row["id"] for row in stored(database)]
    assert found[:20] == kept
    assert set(found[20:]) <= set(at_risk)
    assert [call["decision_id"] for call in stored(database, "calls")] == found, "a decision and its call are lost together, or neither"
    async with serving(mock, database, tmp_path) as (started, client):
        later = await chats(client, 1)
        rows = await until_stored(database, len(found) + 1)
        assert started.end() == 0
    assert [row["id"] for row in rows] == found + later
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_stopped_gateway_stores_what_waits(mock: MockBackend, database: Path, tmp_path: Path) -> None:
    """500 rows that could not be stored yet, because another program held the lock until the gateway had been told to stop."""
    async with serving(mock, database, tmp_path) as (started, client):
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ids = await chats(client, 500, at_once=16)
            assert (await client.get("/health")).status_code == 200
            started.process.send_signal(signal.SIGTERM)
            await until(lambda: not started.answers("/health"), "it takes no more requests", 20)
            assert stored(database) == []
            other.execute("ROLLBACK")
        assert await asyncio.to_thread(started.process.wait, 30) == 0
    assert sorted(row["id"] for row in stored(database)) == sorted(ids)
    assert sorted(call["decision_id"] for call in stored(database, "calls")) == sorted(ids)


async def test_a_new_database_gets_its_schema_while_requests_are_served(mock: MockBackend, tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    async with serving(mock, database, tmp_path) as (started, client):
        ids = await chats(client, 3)
        await until_stored(database, 3)
        maps = await asyncio.to_thread(Path(f"/proc/{started.process.pid}/maps").read_text)
        assert await asyncio.to_thread(started.end) == 0
    assert [row["id"] for row in stored(database)] == ids
    assert "sqlite" in maps
    assert "sqlalchemy" not in maps, "its compiled parts were not loaded by the process that serves"


async def test_a_stopped_gateway_stores_what_waits_for_a_server(mock: MockBackend, postgres: PostgresPlace, tmp_path: Path) -> None:
    """As with a file: 200 rows and their calls, held up by a lock until the gateway had been told to stop."""
    async with serving(mock, postgres.url, tmp_path) as (started, client):
        with contextlib.closing(psycopg.connect(postgres.url)) as other:
            other.execute("LOCK TABLE decisions IN SHARE MODE")
            ids = await chats(client, 200, at_once=16)
            started.process.send_signal(signal.SIGTERM)
            await until(lambda: not started.answers("/health"), "it takes no more requests", 20)
            assert postgres.rows() == []
        assert await asyncio.to_thread(started.process.wait, 30) == 0
    assert sorted(row["id"] for row in postgres.rows()) == sorted(ids)
    assert sorted(call["decision_id"] for call in postgres.rows("calls")) == sorted(ids)


IMPORTED = """
import asyncio, sys
from pathlib import Path
from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.running import config_for, running
from tests.support.stored import until_stored

async def main():
    folder = Path(sys.argv[1])
    async with MockBackend(["mock-model"]) as mock:
        backends = {"mock": {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}}
        config = config_for(backends, storage={"url": f"sqlite:///{folder}/d.db"})
        async with running(config, folder) as run, run.client() as client:
            assert (await client.post(CHAT, json=question())).status_code == 200
            await until_stored(folder / "d.db", 1)
    print(*sorted({name.partition(".")[0] for name in sys.modules}))

asyncio.run(main())
"""


async def test_a_serving_process_loads_no_schema_tools(tmp_path: Path) -> None:
    """Not to migrate, not to store: SQLAlchemy and Alembic would add a third to its memory."""
    command = (sys.executable, "-c", IMPORTED, str(tmp_path))
    root = Path(__file__).parents[2]
    child = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    assert child.returncode == 0
    loaded = set(out.decode().split())
    assert {"gateway", "sqlite3"} <= loaded
    assert not {"sqlalchemy", "alembic", "mako"} & loaded
