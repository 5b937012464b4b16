"""Every change through the admin API is told of: who did it, when, and to what; never a secret, never a text."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import MockBackend
from tests.support.asking import error_of
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.running import Running, config_for, running
from tests.support.stored import Place

__all__ = ["database", "migrated", "place", "postgres", "server"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

Own = tuple[Running, httpx.AsyncClient]
SECRET = "canary-77aa-secret"
PUT = {"content-type": "application/json", "if-match": "*"}


@pytest.fixture
def config(mock: MockBackend) -> dict[str, Any]:
    """A configuration with a secret in it."""
    return config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}, "key": SECRET}})


@pytest_asyncio.fixture(loop_scope="module")
async def own(config: dict[str, Any], tmp_path: Path) -> AsyncIterator[Own]:
    """A gateway of this test's own, without a database."""
    async with running(config, tmp_path / "state") as run, run.client() as client:
        yield run, client


async def audit(client: httpx.AsyncClient, **params: str) -> list[dict[str, Any]]:
    answer = await client.get("/admin/audit", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def change_everything(run: Running, client: httpx.AsyncClient) -> tuple[str, str]:
    """Each kind of change once, with its own request id; the hashes of the first configuration and of the second."""
    first = run.gateway.state.hash
    body = copy.deepcopy(run.config) | {"models": {"mock-model": {"aliases": ["short"]}}}
    body["backends"]["a"]["key"] = "***"
    requests: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("PUT", "/admin/config", {"content": json.dumps(body), "headers": PUT}),
        ("POST", "/admin/config/reload", {}),
        ("PATCH", "/admin/backends/a", {"json": {"state": "draining"}}),
        ("PATCH", "/admin/backends/a", {"json": {"state": "disabled"}}),
        ("PATCH", "/admin/backends/a", {"json": {"state": "serving", "accept": True}}),
    )
    for n, (method, path, more) in enumerate(requests):
        headers = {"x-request-id": f"mine-{n}"} | more.pop("headers", {})
        answer = await client.request(method, path, headers=headers, **more)
        assert answer.status_code == 200, answer.text
    return first, run.gateway.state.hash


async def test_what_was_done_and_by_whom(own: Own) -> None:
    run, client = own
    began = time.time()
    first, second = await change_everything(run, client)

    found = await audit(client)

    told = [(each["action"], each["target"], each["request_id"], each["before_hash"], each["after_hash"], each["detail"]) for each in found]
    assert told == [
        ("backend.accept", "a", "mine-4", None, None, {"before": "disabled"}),
        ("backend.serve", "a", "mine-4", None, None, {"before": "disabled"}),
        ("backend.disable", "a", "mine-3", None, None, {"before": "draining"}),
        ("backend.drain", "a", "mine-2", None, None, {"before": "serving"}),
        ("config.reload", "config", "mine-1", second, second, {}),
        ("config.put", "config", "mine-0", first, second, {}),
    ]
    assert {each["key"] for each in found} == {"test"}
    assert all(began - 1 < each["created"] < time.time() + 1 for each in found)
    assert len({each["id"] for each in found}) == len(found)
    assert (await client.get("/admin/audit")).json()["source"] == "memory"


async def test_going_back_is_told_with_the_version(mock: MockBackend, tmp_path: Path) -> None:
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}})
    async with running(config, tmp_path / "state") as run, run.client() as client:
        first = run.gateway.state.hash
        body = copy.deepcopy(run.config) | {"models": {"mock-model": {"aliases": ["short"]}}}
        put = await client.put("/admin/config", json=body, headers={"if-match": "*"})
        back = await client.post("/admin/config/rollback", json={"version": 1}, headers={"if-match": put.headers["etag"]})
        assert back.status_code == 200

        entry, *_ = await audit(client)

    assert (entry["action"], entry["before_hash"], entry["after_hash"]) == ("config.rollback", put.json()["hash"], first)
    assert entry["detail"] == {"version": 1}


async def test_what_changed_nothing_is_not_told_of(own: Own) -> None:
    run, client = own
    good = run.config
    answers = [
        await client.put("/admin/config", content="version: 2", headers={"if-match": "*"}),
        await client.put("/admin/config", content="version: 2", headers={"if-match": '"x"'}),
        await client.put("/admin/config", json=run.config, params={"dry_run": "true"}),
        await client.post("/admin/config/rollback", json={"version": 9}, headers={"if-match": "*"}),
        await client.patch("/admin/backends/nobody", json={"state": "draining"}),
        await client.patch("/admin/backends/a", json={"state": "asleep"}),
        await client.get("/admin/config"),
    ]
    run.config = {"version": 2}
    answers.append(await client.post("/admin/config/reload"))
    run.config = good
    assert [each.status_code for each in answers] == [400, 412, 200, 404, 404, 400, 200, 400]
    assert await audit(client) == []


async def test_what_is_looked_for(own: Own) -> None:
    run, client = own
    run.config["keys"].append({"name": "other", "sha256": hashlib.sha256(b"sk-other").hexdigest(), "scopes": ["admin"]})
    await client.post("/admin/config/reload")
    async with run.client("sk-other") as other:
        await other.patch("/admin/backends/a", json={"state": "draining"})
    await client.patch("/admin/backends/a", json={"state": "serving"})

    assert [each["action"] for each in await audit(client, key="other")] == ["backend.drain"]
    assert [each["action"] for each in await audit(client, key="test")] == ["backend.serve", "config.reload"]
    assert [each["key"] for each in await audit(client, action="backend.drain")] == ["other"]
    second = (await audit(client))[1]["created"]
    assert len(await audit(client, since=str(second))) == 2
    assert len(await audit(client, since="2020-01-01T00:00:00Z")) == 3
    assert await audit(client, since="2999-01-01T00:00:00+01:00") == []
    assert await audit(client, key="nobody") == []


async def test_page_by_page(own: Own) -> None:
    _, client = own
    for state in ("draining", "serving", "disabled", "serving", "draining"):
        await client.patch("/admin/backends/a", json={"state": state})
    got: list[list[str]] = []
    cursor: str | None = None
    for _ in range(4):
        answer = (await client.get("/admin/audit", params={"limit": "2"} | ({} if cursor is None else {"cursor": cursor}))).json()
        got.append([each["action"] for each in answer["data"]])
        cursor = answer["next"]
        if cursor is None:
            break
    assert got == [["backend.drain", "backend.serve"], ["backend.disable", "backend.serve"], ["backend.drain"]]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1e9", "cursor=x", "cursor=x~y", "since=yesterday", "since=nan", "since=2026-01-01", "who=me"]
)
async def test_what_cannot_be_looked_for(own: Own, query: str) -> None:
    answer = await own[1].get(f"/admin/audit?{query}")
    assert (answer.status_code, error_of(answer)["param"]) == (400, query.partition("=")[0])


async def test_it_is_stored_without_secrets_and_texts(place: Place, config: dict[str, Any], tmp_path: Path) -> None:
    config["storage"] = {"url": place.url}
    async with running(config, tmp_path / "state") as run, run.client() as client:
        first, second = await change_everything(run, client)
        found = await audit(client)
        assert (await client.get("/admin/audit")).json()["source"] == "database"

    rows = place.rows("audit")
    assert [row["id"] for row in rows] == [each["id"] for each in reversed(found)]
    assert [(row["action"], row["before_hash"], row["after_hash"]) for row in rows[:2]] == [
        ("config.put", first, second),
        ("config.reload", second, second),
    ]
    kept = place.everything()
    assert SECRET.encode() not in kept
    assert b"mock-model" not in kept, "no text of a configuration that holds a secret"


async def test_a_change_waits_for_no_database_and_its_entry_does(place: Place, config: dict[str, Any], tmp_path: Path) -> None:
    config["storage"] = {"url": place.url}
    async with running(config, tmp_path / "state") as run, run.client() as client:
        place.execute("ALTER TABLE audit RENAME TO gone")
        await change_everything(run, client)
        answer = (await client.get("/admin/audit")).json()
        assert (len(answer["data"]), answer["source"]) == (6, "memory")
        place.execute("ALTER TABLE gone RENAME TO audit")
    assert len(place.rows("audit")) == 6, "the end stores what waited"
