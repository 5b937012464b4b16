"""What is kept of a tenant or a session is erased on demand, everywhere, and who demanded it is kept."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.store.columns import COLUMNS
from tests.support.asking import CHAT, error_of, question
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.keeping import ID, asked, bank, gateway, keeping, mock, ops, shop
from tests.support.running import Running, running
from tests.support.stored import Place, until_stored

__all__ = ["bank", "database", "gateway", "migrated", "mock", "ops", "place", "postgres", "server", "shop"]

SESSION = "user-7@example.com"


async def erased(ops: httpx.AsyncClient, **query: str) -> dict[str, int]:
    answer = await ops.delete("/admin/decisions", params=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["object"] == "erasure"
    deleted: dict[str, int] = found["deleted"]
    return deleted


async def good(client: httpx.AsyncClient, decision_id: str) -> httpx.Response:
    return await client.post("/v1/feedback", json={"decision_id": decision_id, "verdict": "good_fit"})


async def audited(ops: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Entries about erasures, the oldest first."""
    found = [each for each in (await ops.get("/admin/audit")).json()["data"] if each["action"].startswith("decisions.")]
    return found[::-1]


async def test_a_tenant(shop: httpx.AsyncClient, bank: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    """Whatever still waits to be stored included; of the others everything stays."""
    for client in (shop, shop, bank):
        assert (await good(client, await asked(client))).status_code == 202
    assert await erased(ops, tenant="shop") == {"decisions": 2, "calls": 2, "outcomes": 2, "feedback": 2, "contents": 0}
    assert {row["tenant"] for row in place.rows()} == {"bank"}
    assert [len(place.rows(table)) for table in ("calls", "outcomes", "feedback")] == [1, 1, 1]
    assert {each["tenant"] for each in (await ops.get("/admin/decisions")).json()["data"]} == {"bank"}
    assert await erased(ops, tenant="shop") == dict.fromkeys(COLUMNS, 0)
    assert [(each["action"], each["target"], each["key"]) for each in await audited(ops)] == [
        ("decisions.erase", "tenant shop", "ops"),
        ("decisions.erased", "tenant shop", "ops"),
    ] * 2
    assert (await audited(ops))[1]["detail"] == {"decisions": 2, "calls": 2, "outcomes": 2, "feedback": 2, "contents": 0}


async def test_a_session(shop: httpx.AsyncClient, bank: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    """By the name that its callers gave it, in every tenant; the name itself is nowhere, not in the audit log either."""
    gone = [await asked(client, trilemma={"session_id": SESSION}) for client in (shop, shop, bank)]
    kept = [await asked(shop, trilemma={"session_id": "another"}), await asked(bank)]
    for id_ in gone[:2] + kept[:1]:
        await good(shop, id_)
    assert (await erased(ops, session=SESSION)) == {"decisions": 3, "calls": 3, "outcomes": 2, "feedback": 2, "contents": 0}
    assert {row["id"] for row in place.rows()} == set(kept)
    for id_ in gone[:2]:
        assert (await shop.get(f"/v1/decisions/{id_}")).status_code == 404
    assert (await shop.get(f"/v1/decisions/{kept[0]}")).json()["outcome"] != []
    assert SESSION.encode() not in place.everything()
    assert SESSION not in str(await audited(ops))


async def test_a_session_of_one_tenant(shop: httpx.AsyncClient, bank: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    for client in (shop, bank):
        await asked(client, trilemma={"session_id": SESSION})
    assert (await erased(ops, tenant="bank", session=SESSION))["decisions"] == 1
    (row,) = place.rows()
    assert row["tenant"] == "shop"
    assert (await erased(ops, session=row["session"]))["decisions"] == 1
    assert (await erased(ops, session="nobody"))["decisions"] == 0


async def test_feedback_on_what_was_erased_changes_nothing(shop: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    """It is as if it were on a decision that has not come yet, and nothing ever shows it."""
    id_ = await asked(shop)
    await erased(ops, tenant="shop")
    assert (await good(shop, id_)).status_code == 202
    await until_stored(place, 1, "feedback")
    assert (await shop.get(f"/v1/decisions/{id_}")).status_code == 404
    assert (await ops.get("/admin/decisions")).json()["data"] == []
    assert await erased(ops, tenant="shop") == {"decisions": 0, "calls": 0, "outcomes": 1, "feedback": 1, "contents": 0}
    assert [place.rows(table) for table in COLUMNS] == [[]] * len(COLUMNS)


async def test_what_still_runs_is_kept_when_it_ends(
    shop: httpx.AsyncClient, ops: httpx.AsyncClient, mock: MockBackend, place: Place
) -> None:
    """An erasure is of what was, not of what comes."""
    mock.script(Behaviour(stall_after_events=1))
    async with shop.stream("POST", CHAT, json=question(stream=True)) as answer:
        assert (await erased(ops, tenant="shop"))["decisions"] == 0
    assert [row["id"] for row in await until_stored(place, 1)] == [answer.headers[ID]]


async def test_nobody_waits_for_it(gateway: Running, shop: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    """Requests are served while a large tenant is erased in small batches."""
    await asyncio.gather(*(asked(shop) for _ in range(30)))
    await until_stored(place, 30)
    own = "request_id, created, tenant, key_name, policy, strategy, propensity, attempts, latency_s, events, config_hash"
    copied = ", ".join(f"a.{name}" for name in own.split(", "))
    place.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) "
        f"INSERT INTO decisions (id, {own}) SELECT a.id || '-' || n.i, {copied} FROM decisions AS a, n"
    )
    erasing = asyncio.create_task(erased(ops, tenant="shop"))
    served = 0
    while not erasing.done():
        await asked(shop)
        served += 1
    assert (await erasing)["decisions"] >= 30 + 30 * 200
    assert served > 5


async def test_what_cannot_be_erased(ops: httpx.AsyncClient, place: Place, shop: httpx.AsyncClient) -> None:
    """Everything is never meant."""
    await asked(shop)
    queries = ({}, "tenant"), ({"tenant": ""}, "tenant"), ({"all": "true"}, "all"), ({"session": "\0"}, "session"), ({"key": "shop"}, "key")
    for query, param in queries:
        answer = await ops.delete("/admin/decisions", params=query)
        assert (answer.status_code, error_of(answer)["param"]) == (400, param)
    await until_stored(place, 1)


@pytest.fixture
async def locked(database: Path) -> AsyncIterator[sqlite3.Connection]:
    """Another program holds the write lock."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def test_while_rows_cannot_be_stored_nothing_is_said_to_be_erased(
    mock: MockBackend, database: Path, tmp_path: Path, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits would come afterwards. It is tried again by hand, and then all is gone."""
    monkeypatch.setattr("gateway.http.admin.decisions._FLUSH_S", 0.3)
    async with running(keeping(mock, f"sqlite:///{database}"), tmp_path) as run, run.client("sk-shop") as shop, run.client("sk-ops") as ops:
        await asked(shop)
        answer = await ops.delete("/admin/decisions", params={"tenant": "shop"})
        assert (answer.status_code, error_of(answer)["code"]) == (503, "gateway_storage_unavailable")
        locked.execute("ROLLBACK")
        await until_stored(database, 1)
        monkeypatch.undo()
        assert (await erased(ops, tenant="shop"))["decisions"] == 1


async def test_rows_that_another_process_has_in_hand(mock: MockBackend, place: Place, tmp_path: Path) -> None:
    """Two gateways share a database, and say so: what the other one stores a moment later is erased too."""
    config = keeping(mock, place.url)
    config["server"]["workers"] = 2
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        running(config, tmp_path / "one") as one,
        running(dict(config), tmp_path / "two") as two,
        one.client("sk-shop") as shop,
        two.client("sk-ops") as ops,
    ):
        await asked(shop)
        assert (await erased(ops, tenant="shop"))["decisions"] == 1
        await asked(shop)
        await until_stored(place, 1)
