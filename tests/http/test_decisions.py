"""What was decided, as those see it who asked, and as administrators do."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.ids import DecisionIds
from tests.support.asking import CHAT, error_of, question
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.keeping import ID, asked, bank, gateway, keeping, mock, ops, shop
from tests.support.running import Running, running
from tests.support.stored import Place, until_stored

__all__ = ["bank", "database", "gateway", "migrated", "mock", "ops", "place", "postgres", "server", "shop"]

ANSWER = '{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":900}}}'
COST = (100 * 1.0 + 900 * 0.1 + 10 * 2.0) / 1e6
FORGED = "0199c5a67e5b7b3d8c55a1f0e2d3c4b5-0123456789ab"


async def receipt(client: httpx.AsyncClient, id_: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/decisions/{id_}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# -- one decision


async def test_a_receipt_right_after_the_answer(shop: httpx.AsyncClient, ops: httpx.AsyncClient, mock: MockBackend) -> None:
    """Of a real model: whole, before anybody has waited for the row."""
    mock.script(Behaviour(body=ANSWER))
    before = int(time.time())
    settings = {"session_id": "s1", "tags": {"team": "red"}}
    answer = await shop.post(CHAT, json=question(model="alias", trilemma=settings), headers={"x-request-id": "mine-1"})
    found = await receipt(shop, answer.headers[ID])
    assert before <= found.pop("created") <= time.time()
    latency = found.pop("latency_ms")
    (call,) = found.pop("calls")
    assert 0 < call.pop("start_ms") < call.pop("end_ms") <= latency
    assert call.pop("cost") == pytest.approx(COST)
    assert found.pop("cost") == pytest.approx(COST)
    counts = {"prompt_tokens": 1000, "cached_tokens": 900, "completion_tokens": 10}
    assert call == {"purpose": "served", "backend": "mock", "model": "mock-model", "status": 200, **counts}
    candidate = {"plan": None, "model": "mock-model", "reasoning": None, "strategy": "single", "budget_tokens": None, "estimate": None}
    assert found == {
        "id": answer.headers[ID],
        "object": "decision",
        "dry_run": False,
        "requested_model": "alias",
        "policy": {"name": "none", "version": None},
        "config_hash": (await ops.get("/admin/config")).json()["hash"],
        "snapshot": None,
        "feature_version": None,
        "candidates": [{**candidate, "propensity": 1.0}],
        "excluded": [],
        "prices": {},
        "runner_up_price": None,
        "shadow": {},
        "fallback": None,
        "chosen": None,
        "propensity": 1.0,
        "explored": False,
        "served_model": "mock-model",
        "strategy_candidates": [],
        "strategy_why": None,
        "usage": {**counts, "estimated": False},
        "outcome": [],
        "status": 200,
        "result": "ok",
        "code": None,
        "request_id": "mine-1",
        "tags": {"team": "red"},
    }


async def test_a_receipt_of_a_virtual_model_has_every_candidate(shop: httpx.AsyncClient) -> None:
    """With the propensities of the draw: 3 : 1, and a floor of 0.2 shared by both."""
    found = await receipt(shop, await asked(shop, model="auto"))
    propensities = {"a": 0.8 * 0.75 + 0.1, "b": 0.8 * 0.25 + 0.1}
    assert {each["plan"]: each["propensity"] for each in found["candidates"]} == pytest.approx(propensities)
    assert {each["plan"]: each["model"] for each in found["candidates"]} == {"a": "mock-model", "b": "other"}
    assert found["propensity"] == pytest.approx(propensities[found["chosen"]])
    assert found["policy"] == {"name": "split", "version": None}
    assert found["served_model"] == {"a": "mock-model", "b": "other"}[found["chosen"]]
    assert found["explored"] is (found["chosen"] == "b")


async def test_a_receipt_of_another_policy_than_the_model_s_own(shop: httpx.AsyncClient) -> None:
    found = await receipt(shop, await asked(shop, model="auto", trilemma={"policy": "last"}))
    assert found["policy"]["name"] == "last"
    assert {each["plan"]: each["propensity"] for each in found["candidates"]} == {"a": 0.0, "b": 1.0}


async def test_once_the_configuration_has_changed_what_was_weighed_is_still_known(gateway: Running, shop: httpx.AsyncClient) -> None:
    """But not which model a plan's name meant."""
    id_, real = await asked(shop, model="auto"), await asked(shop)
    before = await receipt(shop, id_)
    gateway.config["policies"]["split"]["params"]["weights"] = {"a": 1, "b": 9}
    assert await gateway.app.reloader.reload()
    after = await receipt(shop, id_)
    known = ("plan", "propensity", "estimate")
    assert [[each[name] for name in known] for each in after["candidates"]] == [
        [each[name] for name in known] for each in before["candidates"]
    ]
    assert [each["model"] for each in after.pop("candidates")] == [None, None]
    assert [(each["plan"], each["model"]) for each in (await receipt(shop, real))["candidates"]] == [(None, None)]
    assert after == {name: value for name, value in before.items() if name != "candidates"}


async def test_a_receipt_of_a_stream_that_broke_off(shop: httpx.AsyncClient, mock: MockBackend) -> None:
    """Its tokens are estimated, and marked as that."""
    mock.script(Behaviour(tokens=("a", "b", "c", "d"), usage="none", reset_after_events=3))
    async with shop.stream("POST", CHAT, json=question(stream=True)) as answer:
        async for _ in answer.aiter_bytes():
            pass
    found = await receipt(shop, answer.headers[ID])
    assert found["result"] == "backend_error"
    assert found["usage"]["estimated"] is True
    assert found["usage"]["completion_tokens"] > 0


async def test_a_receipt_of_a_request_that_never_came_to_a_model(shop: httpx.AsyncClient) -> None:
    found = await receipt(shop, await asked(shop, 404, model="nobody"))
    assert (found["status"], found["result"], found["code"]) == (404, "caller_error", "model_not_found")
    assert (found["requested_model"], found["served_model"], found["candidates"], found["calls"]) == ("nobody", None, [], [])
    assert (found["usage"], found["cost"]) == ({}, None)


async def test_of_another_tenant_there_is_no_decision(
    shop: httpx.AsyncClient, bank: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place
) -> None:
    """Another key of the same one sees it, and so does an administrator, whatever else its key may do."""
    id_ = await asked(shop)
    await until_stored(place, 1)
    answer = await bank.get(f"/v1/decisions/{id_}")
    assert (answer.status_code, error_of(answer)["code"], error_of(answer)["param"]) == (404, "caller_not_found", "decision_id")
    assert (await receipt(ops, id_))["id"] == id_
    assert (await shop.get(f"/v1/decisions/{id_}", headers={"authorization": "Bearer sk-shop-2"})).status_code == 200
    assert (await shop.get(f"/v1/decisions/{id_}", headers={"authorization": ""})).status_code == 401


STRANGE = ("x", FORGED, FORGED[:-1], FORGED.upper(), FORGED + "0", "%00", "a/b", "é", "0" * 5_000)


async def test_an_id_that_was_never_given_out(shop: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    """404, and the database hears nothing of it: a broken one is not noticed."""
    await asked(shop)
    await until_stored(place, 1)
    for id_ in STRANGE:
        answer = await ops.get(f"/v1/decisions/{id_}")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "caller_not_found")
    place.execute("ALTER TABLE decisions RENAME TO elsewhere")
    for id_ in STRANGE:
        answer = await shop.get(f"/v1/decisions/{id_}")
        assert (answer.status_code, error_of(answer)["code"]) == (404, "caller_not_found")


async def test_a_genuine_id_without_a_decision(shop: httpx.AsyncClient) -> None:
    """It has not ended, or is not kept any more."""
    answer = await shop.get(f"/v1/decisions/{DecisionIds(b'keyed-by-this').mint('shop')}")
    assert (answer.status_code, error_of(answer)["param"]) == (404, "decision_id")


async def test_many_at_once(gateway: Running, shop: httpx.AsyncClient) -> None:
    """Nobody is turned away because others read, too."""
    ids = [await asked(shop) for _ in range(3)]
    connector = aiohttp.TCPConnector(limit=0)  # httpx looks through all of its connections for each request
    async with aiohttp.ClientSession(gateway.url, headers={"authorization": "Bearer sk-shop"}, connector=connector) as many:

        async def read(id_: str) -> int:
            async with many.get(f"/v1/decisions/{id_}") as answer:
                await answer.read()
                return answer.status

        assert set(await asyncio.gather(*(read(ids[n % 3]) for n in range(300)))) == {200}


async def test_reading_counts_as_a_request(gateway: Running, shop: httpx.AsyncClient) -> None:
    id_ = await asked(shop)
    async with gateway.client("sk-few") as few:
        answers = [await few.get(f"/v1/decisions/{id_}") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers.get("x-ratelimit-remaining-requests") for answer in answers[:2]] == ["1", "0"]
    assert answers[2].headers["retry-after"]


async def test_without_a_database(mock: MockBackend, tmp_path: Path) -> None:
    """503, which is not tried again by itself; an id that is not ours is none all the same."""
    async with running(keeping(mock, ""), tmp_path) as run, run.client("sk-shop") as shop, run.client("sk-ops") as ops:
        id_ = await asked(shop)
        for answer in (
            await shop.get(f"/v1/decisions/{id_}"),
            await shop.post("/v1/feedback", json={"decision_id": id_, "verdict": "good_fit"}),
            await ops.get("/admin/decisions"),
            await ops.delete("/admin/decisions", params={"tenant": "shop"}),
        ):
            assert (answer.status_code, error_of(answer)["code"]) == (503, "gateway_storage_unavailable")
            assert answer.headers["x-should-retry"] == "false"
            assert "storage.url" in error_of(answer)["message"]
        assert (await shop.get(f"/v1/decisions/{FORGED}")).status_code == 404


async def test_when_the_database_is_gone(gateway: Running, shop: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    id_ = await asked(shop)
    await until_stored(place, 1)
    place.execute("ALTER TABLE decisions RENAME TO elsewhere")
    for answer in (await shop.get(f"/v1/decisions/{id_}"), await ops.get("/admin/decisions")):
        assert (answer.status_code, error_of(answer)["code"]) == (503, "gateway_storage_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    place.execute("ALTER TABLE elsewhere RENAME TO decisions")
    assert (await receipt(shop, id_))["id"] == id_


async def test_a_locked_file_can_be_read(mock: MockBackend, database: Path, tmp_path: Path) -> None:
    """Whoever writes keeps nobody from reading."""
    async with running(keeping(mock, f"sqlite:///{database}"), tmp_path) as run, run.client("sk-shop") as shop:
        id_ = await asked(shop)
        await until_stored(database, 1)
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await receipt(shop, id_))["id"] == id_
            other.execute("ROLLBACK")


# -- the list


@pytest.fixture
async def told(shop: httpx.AsyncClient, bank: httpx.AsyncClient, mock: MockBackend, place: Place) -> dict[str, str]:
    """Decisions of all sorts, by what they are, the oldest first."""
    found = {
        "plain": await asked(shop, trilemma={"session_id": "s1", "tags": {"team": "red"}}),
        "other": await asked(bank, model="other", trilemma={"session_id": "s1"}),
        "drawn": await asked(shop, model="second"),
        "unknown": await asked(bank, 404, model="nobody"),
    }
    mock.script(Behaviour(status=400, body='{"error":{"message":"no"}}'))
    found["refused"] = await asked(shop, 400, trilemma={"session_id": "s2"})
    await until_stored(place, len(found))
    return found


async def listed(ops: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await ops.get("/admin/decisions", params=query)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["object"], body["next"]) == ("list", None)
    return [each["id"] for each in body["data"]]


async def test_the_newest_first(ops: httpx.AsyncClient, told: dict[str, str]) -> None:
    assert await listed(ops) == list(told.values())[::-1]


FILTERS: dict[str, tuple[dict[str, str], set[str]]] = {
    "tenant": ({"tenant": "bank"}, {"other", "unknown"}),
    "key": ({"key": "shop"}, {"plain", "drawn", "refused"}),
    "model": ({"model": "other"}, {"other", "drawn"}),
    "policy": ({"policy": "last"}, {"drawn"}),
    "no policy": ({"policy": "none"}, {"plain", "other", "unknown", "refused"}),
    "outcome": ({"outcome": "caller_error"}, {"unknown", "refused"}),
    "a session": ({"session": "s2"}, {"refused"}),
    "a session of one tenant": ({"session": "s1", "tenant": "shop"}, {"plain"}),
    "no such session": ({"session": "s3"}, set()),
    "several": ({"tenant": "shop", "outcome": "ok", "model": "mock-model"}, {"plain"}),
    "nothing": ({"tenant": "nobody"}, set()),
    "a long time ago": ({"until": "1000"}, set()),
    "since": ({"since": "2020-01-01T00:00:00Z"}, {"plain", "other", "drawn", "unknown", "refused"}),
    "to come": ({"since": str(time.time() + 1e6)}, set()),
}


async def test_filters(ops: httpx.AsyncClient, told: dict[str, str]) -> None:
    for what, (query, wanted) in FILTERS.items():
        assert set(await listed(ops, **query)) == {told[name] for name in wanted}, what


async def test_a_session_as_a_decision_shows_it(ops: httpx.AsyncClient, told: dict[str, str]) -> None:
    """Never as its caller named it."""
    (shown,) = (await ops.get("/admin/decisions", params={"session": "s2"})).json()["data"]
    assert len(shown["session"]) == 32
    assert await listed(ops, session=shown["session"]) == [told["refused"]]
    assert await listed(ops, session=shown["session"], tenant="shop") == [told["refused"]]
    assert await listed(ops, session=shown["session"], tenant="bank") == []


async def test_a_name_that_two_tenants_have_for_their_sessions(ops: httpx.AsyncClient, told: dict[str, str]) -> None:
    answer = await ops.get("/admin/decisions", params={"session": "s1"})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "session")


async def test_an_entry(ops: httpx.AsyncClient, shop: httpx.AsyncClient, told: dict[str, str]) -> None:
    """What the receipt tells, too, and whose it is."""
    found = {each["id"]: each for each in (await ops.get("/admin/decisions")).json()["data"]}[told["drawn"]]
    whole = await receipt(shop, told["drawn"])
    own = {name: found.pop(name) for name in ("tenant", "key", "backend", "plan", "strategy", "attempts", "session")}
    assert own == {
        "tenant": "shop",
        "key": "shop",
        "backend": "mock",
        "plan": "b",
        "strategy": "single",
        "attempts": 1,
        "session": None,
    }
    assert found == {name: whole[name] for name in found}


async def test_page_by_page(ops: httpx.AsyncClient, told: dict[str, str]) -> None:
    found: list[str] = []
    sizes = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await ops.get("/admin/decisions", params=query)).json()
        found += [each["id"] for each in page["data"]]
        sizes.append(len(page["data"]))
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert found == list(told.values())[::-1]
    assert sizes == [2, 2, 1]


WRONG: list[tuple[dict[str, str], str]] = [
    ({"nope": "1"}, "nope"),
    ({"outcome": "fine"}, "outcome"),
    ({"limit": "0"}, "limit"),
    ({"limit": "201"}, "limit"),
    ({"limit": "x"}, "limit"),
    ({"cursor": "x"}, "cursor"),
    ({"cursor": "1~\0"}, "cursor"),
    ({"since": "yesterday"}, "since"),
    ({"since": "nan"}, "since"),
    ({"until": "2026-01-01T00:00:00"}, "until"),
    ({"tenant": ""}, "tenant"),
    ({"tenant": "a\0b"}, "tenant"),
    ({"session": "s" * 1_001}, "session"),
]


async def test_filters_that_cannot_be(ops: httpx.AsyncClient) -> None:
    for query, param in WRONG:
        answer = await ops.get("/admin/decisions", params=query)
        assert (answer.status_code, error_of(answer)["param"]) == (400, param), query


async def test_a_filter_twice(ops: httpx.AsyncClient) -> None:
    answer = await ops.get("/admin/decisions?tenant=a&tenant=b")
    assert (answer.status_code, error_of(answer)["param"]) == (400, "tenant")


async def test_the_list_is_the_administrators(shop: httpx.AsyncClient) -> None:
    for answer in (await shop.get("/admin/decisions"), await shop.delete("/admin/decisions", params={"tenant": "shop"})):
        assert (answer.status_code, error_of(answer)["code"]) == (403, "caller_forbidden_scope")


# -- ids of backends


async def test_whatever_ids_a_backend_sends_every_request_has_its_own(shop: httpx.AsyncClient, mock: MockBackend, place: Place) -> None:
    """Empty ones, or one for all: each of 20 requests leaves its row, and its receipt is its own."""
    mock.script(
        Behaviour(body='{"id":"","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}', times=10),
        Behaviour(body='{"id":"same","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1}}', times=10),
    )
    ids = await asyncio.gather(*(asked(shop) for _ in range(20)))
    assert len(set(ids)) == 20
    await until_stored(place, 20)
    found = [await receipt(shop, id_) for id_ in ids]
    assert sorted(each["usage"]["prompt_tokens"] for each in found) == [1] * 10 + [2] * 10
