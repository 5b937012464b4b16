"""What callers say of answers: taken at once, whenever it comes, and counted once."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.feedback import VERDICTS
from gateway.serving.ids import DecisionIds
from tests.support.asking import CHAT, error_of, question
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.keeping import ID, asked, bank, gateway, keeping, mock, ops, shop
from tests.support.running import Running, running
from tests.support.scraping import scrape
from tests.support.stored import Place, until_stored

__all__ = ["bank", "database", "gateway", "migrated", "mock", "ops", "place", "postgres", "server", "shop"]


async def say(client: httpx.AsyncClient, decision_id: str, **fields: Any) -> dict[str, Any]:
    """What the gateway says to feedback that it takes."""
    answer = await client.post("/v1/feedback", json={"decision_id": decision_id, **fields})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    assert set(found) == {"object", "id", "status"}
    assert found["object"] == "feedback"
    return found


async def outcome(client: httpx.AsyncClient, decision_id: str) -> dict[str, float]:
    """Metric -> value, as the receipt has it."""
    answer = await client.get(f"/v1/decisions/{decision_id}")
    assert answer.status_code == 200, answer.text
    found = answer.json()["outcome"]
    assert all((each["source"], each["labelling_probability"]) == ("feedback", 1.0) for each in found)
    return {each["metric"]: each["value"] for each in found}


async def test_verdicts(shop: httpx.AsyncClient, place: Place) -> None:
    """Each is one of quality; which verdict it was is kept beside it."""
    values = {"good_fit": 1.0, "overprovisioned": 1.0, "underpowered": 0.0, "failed": 0.0}
    for count, (verdict, value) in enumerate(values.items(), 1):
        id_ = await asked(shop)
        said = await say(shop, id_, verdict=verdict)
        assert said["status"] in ("joined", "pending")
        row = (await until_stored(place, count, "feedback"))[-1]
        assert row.pop("created") > 1e9
        assert row == {
            "tenant": "shop",
            "id": said["id"],
            "decision_id": id_,
            "metric": "quality",
            "value": value,
            "verdict": verdict,
            "key_name": "shop",
            "weight": 1.0,
        }
        assert await outcome(shop, id_) == {"quality": value}


async def test_values_of_any_metric(shop: httpx.AsyncClient, place: Place) -> None:
    id_ = await asked(shop)
    values = {"half": 0.25, "one": 1, "none": 0, "yes": True, "no": False}
    for metric, value in values.items():
        await say(shop, id_, metric=f"json.{metric}", value=value)
    await until_stored(place, len(values), "feedback")
    assert await outcome(shop, id_) == {"json.half": 0.25, "json.one": 1.0, "json.none": 0.0, "json.yes": 1.0, "json.no": 0.0}


async def test_long_after_the_answer(shop: httpx.AsyncClient, place: Place) -> None:
    id_ = await asked(shop)
    await until_stored(place, 1)
    assert (await say(shop, id_, verdict="good_fit"))["status"] == "joined"
    await until_stored(place, 1, "outcomes")


async def test_while_the_stream_still_runs(shop: httpx.AsyncClient, mock: MockBackend, place: Place) -> None:
    """The answer's head tells the id. It is pending, also in the database, and joined once the row comes."""
    mock.script(Behaviour(stall_after_events=1))
    async with shop.stream("POST", CHAT, json=question(stream=True)) as answer:
        id_ = answer.headers[ID]
        assert (await say(shop, id_, verdict="failed"))["status"] == "pending"
        await until_stored(place, 1, "feedback")
        assert place.rows() == []
    await until_stored(place, 1)
    assert await outcome(shop, id_) == {"quality": 0.0}


async def test_500_at_once_within_a_millisecond_of_the_end(mock: MockBackend, database: Path, tmp_path: Path) -> None:
    """Each from the very moment in which its stream said [DONE]: all are taken, and each is counted exactly once."""
    count = 500
    mock.script(default=Behaviour(text="x"))
    async with (
        running(keeping(mock, f"sqlite:///{database}"), tmp_path) as run,
        aiohttp.ClientSession(
            run.url, headers={"authorization": "Bearer sk-shop"}, connector=aiohttp.TCPConnector(limit=0)
        ) as shop,  # httpx looks through all of its connections for each request
    ):

        async def one(n: int) -> str:
            async with shop.post(CHAT, json=question(stream=True)) as answer:
                id_ = answer.headers[ID]
                async for data in answer.content.iter_any():
                    if b"[DONE]" in data:
                        said = {"decision_id": id_, "metric": "quality", "value": n % 2}
                        async with shop.post("/v1/feedback", json=said) as taken:
                            assert taken.status == 202, await taken.text()
            return id_

        ids = await asyncio.gather(*(one(n) for n in range(count)))
        await until_stored(database, count)
        await until_stored(database, count, "feedback")
        rows = await until_stored(database, count, "outcomes")
    assert {row["decision_id"]: row["value"] for row in rows} == {id_: float(n % 2) for n, id_ in enumerate(ids)}


# -- once


async def test_the_same_feedback_id_counts_once(gateway: Running, shop: httpx.AsyncClient, ops: httpx.AsyncClient, place: Place) -> None:
    """Whatever it says the second time, and whichever key of the tenant says it."""
    id_ = await asked(shop)
    first = await say(shop, id_, metric="quality", value=1, feedback_id="mine:1")
    assert first["id"] == "mine:1"
    again = [await say(shop, id_, metric="quality", value=0, feedback_id="mine:1") for _ in range(3)]
    async with gateway.client("sk-shop-2") as colleague:
        again.append(await say(colleague, id_, verdict="failed", feedback_id="mine:1"))
    assert {(each["id"], each["status"]) for each in again} == {("mine:1", "duplicate")}
    assert (await scrape(ops)).of("trilemma_feedback_total") == 1
    await until_stored(place, 1)
    await until_stored(place, 1, "feedback")
    assert await outcome(shop, id_) == {"quality": 1.0}


async def test_another_tenant_has_feedback_ids_of_its_own(shop: httpx.AsyncClient, bank: httpx.AsyncClient, place: Place) -> None:
    for client in (shop, bank):
        assert (await say(client, await asked(client), verdict="good_fit", feedback_id="1"))["status"] != "duplicate"
    await until_stored(place, 2, "feedback")


async def test_a_duplicate_after_a_restart_counts_once_too(mock: MockBackend, place: Place, tmp_path: Path) -> None:
    """Only the database remembers it then."""
    ids = []
    for value in (1, 0):
        async with running(keeping(mock, place.url), tmp_path) as run, run.client("sk-shop") as shop:
            ids += [] if ids else [await asked(shop)]
            await say(shop, ids[0], metric="quality", value=value, feedback_id="mine")
    assert [row["value"] for row in place.rows("feedback")] == [1.0]
    assert [row["value"] for row in place.rows("outcomes")] == [1.0]


async def test_a_key_may_change_its_mind_and_several_keys_are_averaged(gateway: Running, shop: httpx.AsyncClient, place: Place) -> None:
    """However often a key speaks, it has one voice."""
    id_ = await asked(shop)
    async with gateway.client("sk-shop-2") as colleague:
        for value in (0, 0, 0, 0.5):
            await say(shop, id_, metric="quality", value=value)
        await say(colleague, id_, metric="quality", value=1)
    await until_stored(place, 5, "feedback")
    assert await outcome(shop, id_) == {"quality": pytest.approx(0.75)}


# -- whose


async def test_only_for_decisions_of_one_s_own_tenant(shop: httpx.AsyncClient, bank: httpx.AsyncClient, place: Place) -> None:
    """Another tenant's, a forged or a changed id: as if there were no such decision, and nothing is kept."""
    id_ = await asked(shop)
    forged = DecisionIds(b"guessed").mint("shop")
    for client, named in ((bank, id_), (shop, forged), (shop, id_[:-1] + ("0" if id_[-1] != "0" else "1")), (shop, "x"), (shop, "")):
        answer = await client.post("/v1/feedback", json={"decision_id": named, "verdict": "good_fit"})
        assert (answer.status_code, error_of(answer)["code"], error_of(answer)["param"]) == (404, "caller_not_found", "decision_id")
    await say(shop, id_, verdict="good_fit")
    assert [row["key_name"] for row in await until_stored(place, 1, "feedback")] == ["shop"]


async def test_keys(shop: httpx.AsyncClient, ops: httpx.AsyncClient) -> None:
    body = {"decision_id": await asked(shop), "verdict": "good_fit"}
    answer = await ops.post("/v1/feedback", json=body)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "caller_forbidden_scope")
    answer = await shop.post("/v1/feedback", json=body, headers={"authorization": "Bearer sk-no"})
    assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")


async def test_what_is_not_kept_any_more_is_not_taken(mock: MockBackend, place: Place, tmp_path: Path) -> None:
    storage = {"url": place.url, "keep_days": 30}
    old = DecisionIds(b"keyed-by-this", lambda: 1_700_000_000 * 10**9).mint("shop")
    async with running(keeping(mock, "", storage=storage), tmp_path) as run, run.client("sk-shop") as shop:
        answer = await shop.post("/v1/feedback", json={"decision_id": old, "verdict": "good_fit"})
        assert (answer.status_code, error_of(answer)["param"]) == (404, "decision_id")


# -- what it may say

GENUINE = DecisionIds(b"keyed-by-this").mint("shop")
WRONG: list[tuple[Any, str | None, str]] = [
    ({"verdict": "good_fit"}, "decision_id", "caller_invalid_value"),
    ({"decision_id": 1, "verdict": "good_fit"}, "decision_id", "caller_invalid_value"),
    ({"decision_id": GENUINE}, "metric", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "quality"}, "value", "caller_invalid_value"),
    ({"decision_id": GENUINE, "value": 1}, "metric", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "a b", "value": 1}, "metric", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "m" * 65, "value": 1}, "metric", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "quality", "value": 1.01}, "value", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "quality", "value": -0.1}, "value", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "quality", "value": "1"}, "value", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "quality", "value": [1]}, "value", "caller_invalid_value"),
    ({"decision_id": GENUINE, "metric": "quality", "value": 10**30}, "value", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "great"}, "verdict", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": ["good_fit"]}, "verdict", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "good_fit", "value": 1}, "verdict", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "good_fit", "metric": "quality"}, "verdict", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "good_fit", "feedback_id": "a b"}, "feedback_id", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "good_fit", "feedback_id": ""}, "feedback_id", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "good_fit", "feedback_id": 7}, "feedback_id", "caller_invalid_value"),
    ({"decision_id": GENUINE, "verdict": "good_fit", "comment": "SECRET"}, "comment", "caller_unknown_parameter"),
    ({"response_id": "chatcmpl-1", "verdict": "good_fit"}, "response_id", "caller_invalid_value"),
    ([], None, "caller_invalid_json"),
    ("x", None, "caller_invalid_json"),
]


async def test_what_cannot_be_said(shop: httpx.AsyncClient, place: Place) -> None:
    """400, by name, and nothing is kept of it."""
    for body, param, code in WRONG:
        answer = await shop.post("/v1/feedback", json=body)
        assert (answer.status_code, error_of(answer)["code"], error_of(answer)["param"]) == (400, code, param), body
        assert "SECRET" not in answer.text
    for text in ("", "{", '{"decision_id": NaN}', "\xff"):
        answer = await shop.post("/v1/feedback", content=text.encode("latin-1"))
        assert (answer.status_code, error_of(answer)["code"]) == (400, "caller_invalid_json")
    await say(shop, await asked(shop), verdict="good_fit")
    await until_stored(place, 1, "feedback")


async def test_a_large_body(shop: httpx.AsyncClient) -> None:
    """5 MB do not even get as far as the parser."""
    for size in (65_537, 5_000_000):
        answer = await shop.post("/v1/feedback", content=b'{"decision_id": "' + b"x" * size + b'"}')
        assert (answer.status_code, error_of(answer)["code"]) == (413, "caller_body_too_large")


async def test_other_methods(shop: httpx.AsyncClient) -> None:
    answer = await shop.get("/v1/feedback")
    assert (answer.status_code, error_of(answer)["code"], answer.headers["allow"]) == (405, "caller_method_not_allowed", "POST")


def test_every_verdict_has_a_value() -> None:
    assert set(VERDICTS) == {"good_fit", "underpowered", "overprovisioned", "failed"}


# -- how much


async def test_what_a_key_says_counts_so_often_an_hour(mock: MockBackend, place: Place, tmp_path: Path) -> None:
    """More is a 429 that says when; a duplicate is no more, and other keys are not kept by it."""
    config = keeping(mock, place.url, feedback={"per_key_per_hour": 3})
    async with running(config, tmp_path) as run, run.client("sk-shop") as shop, run.client("sk-shop-2") as colleague:
        ids = [await asked(shop) for _ in range(4)]
        for n, id_ in enumerate(ids[:3]):
            await say(shop, id_, verdict="good_fit", feedback_id=str(n))
        answer = await shop.post("/v1/feedback", json={"decision_id": ids[3], "verdict": "good_fit"})
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert 0 < int(answer.headers["retry-after"]) <= 3_600
        assert (await say(shop, ids[0], verdict="good_fit", feedback_id="0"))["status"] == "duplicate"
        await say(colleague, ids[3], verdict="good_fit")
        await until_stored(place, 4, "feedback")


async def test_feedback_counts_as_a_request(gateway: Running, shop: httpx.AsyncClient) -> None:
    id_ = await asked(shop)
    async with gateway.client("sk-few") as few:
        answers = [await few.post("/v1/feedback", json={"decision_id": id_, "verdict": "good_fit"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[1].headers["x-ratelimit-remaining-requests"] == "0"


# -- while the database is away


async def test_while_the_database_is_locked(mock: MockBackend, database: Path, tmp_path: Path) -> None:
    """Nobody waits, and nothing is lost."""
    async with running(keeping(mock, f"sqlite:///{database}"), tmp_path) as run, run.client("sk-shop") as shop:
        with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(5):
                ids = [await asked(shop) for _ in range(20)]
                said = [await say(shop, id_, verdict="good_fit") for id_ in ids]
            assert {each["status"] for each in said} == {"joined"}
            other.execute("ROLLBACK")
        rows = await until_stored(database, 20, "outcomes")
    assert {row["decision_id"] for row in rows} == set(ids)
