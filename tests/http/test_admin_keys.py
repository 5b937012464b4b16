"""/admin/keys: keys made, altered and revoked while gateways run, and what each of them makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from gateway.mock import MockBackend
from tests.support.asking import CHAT, error_of, question
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.running import KEY, Running, config_for, running
from tests.support.stored import Place, SqlitePlace
from tests.support.waiting import until

__all__ = ["database", "migrated", "place", "postgres", "server"]

PATH = "/admin/keys"


def config(mock: MockBackend, url: str, **sections: Any) -> dict[str, Any]:
    backend = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model", "other": "mock-model"}}
    return config_for({"mock": backend}, storage={"url": url}, **sections)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[MockBackend]:
    async with MockBackend(["mock-model"]) as found:
        yield found


@pytest_asyncio.fixture
async def run(engine: MockBackend, place: Place, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway with a database of either kind."""
    async with running(config(engine, place.url), tmp_path / "one") as found:
        yield found


@pytest_asyncio.fixture
async def admin(run: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with run.client() as found:
        yield found


async def made(admin: httpx.AsyncClient, name: str = "web", **properties: Any) -> dict[str, Any]:
    answer = await admin.post(PATH, json={"name": name, **properties})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def becomes(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits until it is so; it is asked over HTTP, and nothing here tells when that changes."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def asks(run: Running, key: str, **extra: Any) -> httpx.Response:
    async with run.client(key) as client:
        return await client.post(CHAT, json=question(**extra))


async def test_a_new_key_is_shown_once_and_works_at_once(run: Running, admin: httpx.AsyncClient, place: Place) -> None:
    answer = await admin.post(PATH, json={"name": "web", "tenant": "shop", "models": ["mock-*"], "limits": {"rpm": 3}})

    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    secret = found.pop("key")
    assert found == {
        "object": "key",
        "id": found["id"],
        "name": "web",
        "scopes": ["inference"],
        "tenant": "shop",
        "models": ["mock-*"],
        "tags": {},
        "priority": "interactive",
        "limits": {"rpm": 3, "tpm": None, "concurrency": None},
        "expires": None,
        "state": "good",
        "created": found["created"],
        "revoked": None,
    }
    for later in (await admin.get(f"{PATH}/{found['id']}"), await admin.get(PATH)):
        assert secret not in later.text
    assert secret.encode() not in place.everything()
    answer = await asks(run, secret)
    assert (answer.status_code, answer.headers["x-ratelimit-limit-requests"]) == (200, "3")
    assert (await asks(run, secret, model="other")).status_code == 403
    assert run.settled[-1].principal is not None and run.settled[-1].principal.tenant == "shop"
    async with run.client(secret) as client:
        assert (await client.get(PATH)).status_code == 403


async def test_every_process_knows_a_new_key_and_forgets_a_revoked_one(
    run: Running, admin: httpx.AsyncClient, engine: MockBackend, place: Place, tmp_path: Path
) -> None:
    async with running(config(engine, place.url), tmp_path / "two") as second:
        found = await made(admin)

        def known() -> bool:
            return any(each.key == "web" for each in second.gateway.state.keys.values())

        await until(known, "the other process has heard of it", 5)
        assert (await asks(second, found["key"])).status_code == 200
        answer = await admin.delete(f"{PATH}/{found['id']}")
        assert (answer.status_code, answer.json()["state"]) == (200, "revoked")
        assert (await asks(run, found["key"])).status_code == 401
        await until(lambda: not known(), "and that it is revoked", 5)
        assert (await asks(second, found["key"])).status_code == 401
        assert (await admin.delete(f"{PATH}/{found['id']}")).json() == answer.json()


async def test_a_change_takes_effect_at_once_and_leaves_the_rest(run: Running, admin: httpx.AsyncClient) -> None:
    found = await made(admin, tenant="shop", limits={"rpm": 1}, expires="2999-12-31")
    assert (await asks(run, found["key"])).status_code == 200
    assert (await asks(run, found["key"])).status_code == 429

    answer = await admin.patch(f"{PATH}/{found['id']}", json={"limits": {"rpm": 2}})
    assert answer.json() == {name: value for name, value in found.items() if name != "key"} | {
        "limits": {"rpm": 2, "tpm": None, "concurrency": None}
    }
    assert (await asks(run, found["key"])).status_code == 200
    assert (await asks(run, found["key"])).status_code == 429
    await admin.patch(f"{PATH}/{found['id']}", json={"expires": 1})
    answer = await asks(run, found["key"])
    assert (answer.status_code, error_of(answer)["message"]) == (401, "This API key has expired.")
    assert (await admin.get(f"{PATH}/{found['id']}")).json()["state"] == "expired"
    await admin.patch(f"{PATH}/{found['id']}", json={"expires": None, "limits": {"rpm": None}})
    answer = await asks(run, found["key"])
    assert (answer.status_code, "x-ratelimit-limit-requests" in answer.headers) == (200, False)


async def test_keys_outlive_a_reload_and_a_restart(engine: MockBackend, place: Place, tmp_path: Path) -> None:
    async with running(config(engine, place.url), tmp_path / "one") as run, run.client() as admin:
        found = await made(admin, models=["late"])
        run.config["models"] = {"mock-model": {"aliases": ["late"]}}
        assert (await admin.post("/admin/config/reload")).status_code == 200
        assert (await asks(run, found["key"], model="late")).status_code == 200
    async with running(config(engine, place.url), tmp_path / "two") as run:
        assert (await asks(run, found["key"])).status_code == 403  # it is known, and may not
        assert (await asks(run, "sk-unknown")).status_code == 401


async def test_the_list_is_read_page_by_page(run: Running, admin: httpx.AsyncClient) -> None:
    names = [f"key-{n}" for n in range(7)]
    for name in names:
        await made(admin, name)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        answer = (await admin.get(PATH, params=query)).json()
        assert [key["name"] for key in answer["configured"]] == ["test"]
        assert answer["configured"][0]["id"] is None
        seen += [key["name"] for key in answer["data"]]
        if answer["next"] is None:
            break
        query["cursor"] = answer["next"]
    assert seen == names[::-1]


async def test_each_change_stands_in_the_audit_log(admin: httpx.AsyncClient) -> None:
    found = await made(admin)
    path = f"{PATH}/{found['id']}"
    ids = [
        (await admin.patch(path, json={"limits": {"rpm": 5}})).headers["x-request-id"],
        (await admin.delete(path)).headers["x-request-id"],
    ]

    answer = await admin.get("/admin/audit")
    entries = [each for each in answer.json()["data"] if each["action"].startswith("key.")]
    assert [(each["action"], each["target"], each["key"]) for each in entries] == [
        ("key.revoke", "web", "test"),
        ("key.change", "web", "test"),
        ("key.new", "web", "test"),
    ]
    assert [each["request_id"] for each in entries[:2]] == ids[::-1]
    assert entries[0]["before_hash"] == entries[1]["after_hash"]
    assert found["key"] not in answer.text


BAD = (
    (b"{", 400, "caller_invalid_json", None),
    (b"[]", 400, "caller_invalid_json", None),
    (b"{}", 400, "caller_invalid_value", None),
    (b'{"tenant":"x"}', 400, "caller_invalid_value", "name"),
    (b'{"name":"x","nmae":1}', 400, "caller_unknown_parameter", "nmae"),
    (b'{"name":"x","sha256":"a"}', 400, "caller_unknown_parameter", "sha256"),
    (b'{"name":"x","limits":{"rpm":0}}', 400, "caller_invalid_value", "limits.rpm"),
    (b'{"name":"x","limits":{"rps":1}}', 400, "caller_unknown_parameter", "limits.rps"),
    (b'{"name":"x","scopes":["root"]}', 400, "caller_invalid_value", "scopes.0"),
    (b'{"name":"x","expires":"soon"}', 400, "caller_invalid_value", "expires"),
    (b'{"name":"x\\u0000"}', 400, "caller_invalid_value", "name"),
    (b'{"name":"test"}', 409, "caller_invalid_value", "name"),
    (b'{"name":"taken"}', 409, "caller_invalid_value", "name"),
    (b'{"name":"' + b"x" * 20_000 + b'"}', 413, "caller_body_too_large", None),
)


async def test_what_cannot_be_is_told_by_name(admin: httpx.AsyncClient) -> None:
    await made(admin, "taken")
    for body, status, code, param in BAD:
        answer = await admin.post(PATH, content=body)
        assert answer.status_code == status, body
        assert (error_of(answer)["code"], error_of(answer)["param"]) == (code, param), body
    assert len((await admin.get(PATH)).json()["data"]) == 1


async def test_a_list_that_cannot_be_is_refused(admin: httpx.AsyncClient) -> None:
    for query in ("limit=0", "limit=201", "limit=x", "cursor=x", "zz=1"):
        answer = await admin.get(f"{PATH}?{query}")
        assert answer.status_code == 400, query
        assert error_of(answer)["param"] == query.partition("=")[0]


async def test_a_key_that_is_not_there_is_a_404_and_a_name_cannot_be_changed(admin: httpx.AsyncClient) -> None:
    for id_ in ("key-0", "web", "%00", "a%2Fb"):
        for answer in (
            await admin.get(f"{PATH}/{id_}"),
            await admin.patch(f"{PATH}/{id_}", json={"tenant": "x"}),
            await admin.delete(f"{PATH}/{id_}"),
        ):
            assert answer.status_code == 404, id_
            assert error_of(answer)["code"] == "caller_not_found"
    found = await made(admin)
    answer = await admin.patch(f"{PATH}/{found['id']}", json={"name": "other"})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "name")


async def test_only_admin_keys_may(run: Running, admin: httpx.AsyncClient) -> None:
    found = await made(admin, scopes=["inference", "metrics"])
    async with run.client(found["key"]) as client, run.client("sk-wrong") as wrong:
        for method, path in (("GET", PATH), ("POST", PATH), *((method, f"{PATH}/x") for method in ("GET", "PATCH", "DELETE"))):
            assert (await client.request(method, path)).status_code == 403
            assert (await wrong.request(method, path)).status_code == 401


async def test_without_a_database_there_are_none_to_change(engine: MockBackend, tmp_path: Path) -> None:
    async with running(config(engine, ""), tmp_path) as run, run.client() as admin:
        for answer in (await admin.get(PATH), await admin.post(PATH, json={"name": "web"}), await admin.delete(f"{PATH}/x")):
            assert answer.status_code == 503
            assert error_of(answer)["code"] == "gateway_storage_unavailable"


async def test_without_their_database_keys_go_on_for_their_time_and_those_of_the_configuration_for_ever(
    engine: MockBackend, database: Path, tmp_path: Path
) -> None:
    place = SqlitePlace(database)
    settings = config(engine, place.url)
    settings["storage"]["keys_grace_s"] = 2
    async with running(settings, tmp_path) as run, run.client() as admin:
        found = await made(admin)
        place.execute("ALTER TABLE keys RENAME TO keys_away")

        async def degraded() -> list[str]:
            answer = await admin.get("/ready")
            told: list[str] = answer.json()["degraded"]
            return told

        async def served() -> bool:
            return (await asks(run, found["key"])).status_code == 200

        async def changed() -> bool:
            assert await served()
            return "keys: those of the database may have changed" in await degraded()

        async def stopped() -> bool:
            return "keys: those of the database are out of use" in await degraded()

        await becomes(changed)
        assert await served()
        await becomes(stopped)
        assert (await asks(run, found["key"])).status_code == 401
        assert (await asks(run, KEY)).status_code == 200
        answer = await admin.post(PATH, json={"name": "more"})
        assert (answer.status_code, error_of(answer)["code"]) == (503, "gateway_storage_unavailable")
        place.execute("ALTER TABLE keys_away RENAME TO keys")
        await becomes(served)
        assert await degraded() == []
