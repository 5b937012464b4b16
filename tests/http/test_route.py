"""A dry run tells what would be decided, and does nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.ids import minted_at
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.databases import database, migrated
from tests.support.keeping import ID, KEYS, asked, keeping, mock
from tests.support.running import Running, running
from tests.support.stored import until_stored

__all__ = ["database", "migrated", "mock"]

ROUTE = "/v1/route"


@pytest.fixture(params=["hot", "asgi", "fastapi"])
async def gateway(request: pytest.FixtureRequest, mock: MockBackend, database: Path, tmp_path: Path) -> AsyncIterator[Running]:
    """On every way that a chat may take."""
    async with running(keeping(mock, f"sqlite:///{database}"), tmp_path, request.param) as run:
        yield run


@pytest.fixture
async def shop(gateway: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A caller."""
    async with gateway.client("sk-shop") as client:
        yield client


async def tried(client: httpx.AsyncClient, path: str = ROUTE, **body: Any) -> dict[str, Any]:
    """The decision."""
    if path != ROUTE:
        body["trilemma"] = {**body.get("trilemma", {}), "dry_run": True}
    answer = await client.post(path, json=question(**body))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert all(name in answer.headers for name in ALWAYS)
    found: dict[str, Any] = answer.json()
    assert found["id"] == answer.headers[ID]
    assert found["dry_run"] is True
    return found


@pytest.mark.parametrize("path", [ROUTE, CHAT])
async def test_a_virtual_model(shop: httpx.AsyncClient, mock: MockBackend, path: str) -> None:
    found = await tried(shop, path, model="auto", trilemma={"tags": {"team": "red"}})
    assert len(found.pop("config_hash")) == 64
    assert found.pop("created") == int(minted_at(found.pop("id")))
    assert found.pop("request_id").startswith("req_")
    chosen = found.pop("chosen")
    prices = found["prices"]
    assert set(prices) == {"cost", "latency"}
    known = {each.pop("plan"): each.pop("estimate") for each in found["candidates"]}
    assert all(each["quality"] is None and each["score"] is None and each["cost"] >= 0 for each in known.values())
    assert list(known) == ["a", "b"]
    one = {"reasoning": None, "strategy": "single", "budget_tokens": None}
    propensities = {"a": pytest.approx(0.8 * 0.75 + 0.1), "b": pytest.approx(0.8 * 0.25 + 0.1)}
    assert found == {
        "object": "decision",
        "dry_run": True,
        "requested_model": "auto",
        "policy": {"name": "split", "version": None},
        "snapshot": None,
        "feature_version": None,
        "candidates": [
            {"model": "mock-model", **one, "propensity": propensities["a"]},
            {"model": "other", **one, "propensity": propensities["b"]},
        ],
        "excluded": [],
        "prices": prices,
        "runner_up_price": None,
        "shadow": {},
        "fallback": None,
        "propensity": propensities[chosen],
        "explored": chosen == "b",
        "served_model": None,
        "calls": [],
        "strategy_candidates": [],
        "strategy_why": None,
        "usage": {},
        "cost": 0,
        "latency_ms": None,
        "outcome": [],
        "status": None,
        "result": None,
        "code": None,
        "tags": {"team": "red"},
    }
    assert mock.requests == [] or {request.path for request in mock.requests} == {"/v1/models"}


@pytest.mark.parametrize("path", [ROUTE, CHAT])
@pytest.mark.parametrize("name", ["mock-model", "alias"])
async def test_a_real_model_is_one_candidate(shop: httpx.AsyncClient, path: str, name: str) -> None:
    found = await tried(shop, path, model=name, stream=True)
    assert found["requested_model"] == name
    (candidate,) = found["candidates"]
    assert (candidate["plan"], candidate["model"], candidate["propensity"]) == (None, "mock-model", 1.0)
    assert (found["policy"]["name"], found["chosen"]) == ("none", None)


async def test_settings_are_heeded(shop: httpx.AsyncClient) -> None:
    found = await tried(shop, model="auto", trilemma={"policy": "last"})
    assert (found["policy"]["name"], found["chosen"], found["propensity"]) == ("last", "b", 1.0)


async def test_it_draws_as_a_chat_does(shop: httpx.AsyncClient) -> None:
    """70 in 100, and 30 in 100: of 300 draws so many that a fair one would miss it once in a million times."""
    drawn = Counter([(await tried(shop, model="auto"))["chosen"] for _ in range(300)])
    assert 165 <= drawn["a"] <= 250


async def test_nothing_is_called_kept_or_counted(gateway: Running, shop: httpx.AsyncClient, mock: MockBackend, database: Path) -> None:
    """Also of one that is refused; and there is no such decision afterwards."""
    id_ = (await tried(shop, model="auto"))["id"]
    await tried(shop, CHAT, model="auto")
    for path, body in ((ROUTE, question(model="nobody")), (CHAT, question(model="nobody", trilemma={"dry_run": True}))):
        assert (await shop.post(path, json=body)).status_code == 404
    assert gateway.settled == []
    kept = await asked(shop)
    assert [row["id"] for row in await until_stored(database, 1)] == [kept]
    assert (await shop.get(f"/v1/decisions/{id_}")).status_code == 404
    assert [request.path for request in mock.requests if request.path != "/v1/models"] == [CHAT]
    assert gateway.in_flight() == 0


async def test_an_idempotency_key_is_the_chat_s(shop: httpx.AsyncClient) -> None:
    """Whoever tries first and then asks, with one key for both, gets an answer."""
    for path, kind in ((ROUTE, "decision"), (CHAT, "chat.completion"), (ROUTE, "decision")):
        answer = await shop.post(path, json=question(), headers={"idempotency-key": "once"})
        assert answer.json()["object"] == kind


async def test_dry_run_false_is_a_chat(shop: httpx.AsyncClient, mock: MockBackend) -> None:
    answer = await shop.post(CHAT, json=question(trilemma={"dry_run": False, "learn": None, "include": ["decision"]}))
    assert answer.json()["object"] == "chat.completion"
    assert b"trilemma" not in mock.requests[-1].body


async def test_what_is_wrong_is_told_as_for_a_chat(shop: httpx.AsyncClient) -> None:
    for body, status, param in (
        (question(model="nobody"), 404, "model"),
        ({"messages": []}, 400, "model"),
        (question(trilemma={"nope": 1}), 400, "trilemma.nope"),
        (question(trilemma={"strategy": "magic"}), 400, "trilemma.strategy"),
        (question(trilemma={"include": ["all"]}), 400, "trilemma.include[0]"),
        (question(model="auto", trilemma={"policy": "none-such"}), 400, "trilemma.policy"),
        (question(n=1_000), 400, "n"),
    ):
        routed, chatted = await shop.post(ROUTE, json=body), await shop.post(CHAT, json=body)
        assert (routed.status_code, error_of(routed)["param"]) == (status, param)
        assert error_of(routed) == error_of(chatted)
    answer = await shop.post(ROUTE, content=b"{")
    assert (answer.status_code, error_of(answer)["code"]) == (400, "caller_invalid_json")


async def test_the_same_caps_and_keys_as_for_a_chat(gateway: Running, shop: httpx.AsyncClient) -> None:
    """A body too large, a wrong key, a key of another scope, and a limit: 2 requests a minute, whichever they are."""
    answer = await shop.post(ROUTE, json=question(model="auto", user="x" * 5_000_000))
    assert (answer.status_code, error_of(answer)["code"]) == (413, "caller_body_too_large")
    for key, status, code in (("sk-no", 401, "invalid_api_key"), ("sk-ops", 403, "caller_forbidden_scope")):
        answer = await shop.post(ROUTE, json=question(), headers={"authorization": f"Bearer {key}"})
        assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    async with gateway.client("sk-few") as few:
        answers = [await few.post(path, json=question()) for path in (ROUTE, CHAT, ROUTE)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["1", "0", "0"]


async def test_a_model_that_a_key_may_not_use(mock: MockBackend, database: Path, tmp_path: Path) -> None:
    config = keeping(mock, f"sqlite:///{database}")
    config["keys"][list(KEYS).index("shop")]["models"] = ["mock-model"]
    async with running(config, tmp_path) as run, run.client("sk-shop") as shop:
        answer = await shop.post(ROUTE, json=question(model="auto"))
        assert (answer.status_code, error_of(answer)["code"]) == (403, "caller_forbidden_model")


async def test_a_dead_backend_is_no_obstacle(mock: MockBackend, shop: httpx.AsyncClient) -> None:
    """Nothing is called."""
    mock.script(default=Behaviour(status=500))
    await asyncio.gather(*(tried(shop, model="auto") for _ in range(20)))


async def test_what_is_no_route(shop: httpx.AsyncClient) -> None:
    """Nor is it relayed."""
    answer = await shop.get(ROUTE)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    for path in ("/v1/route/", "/v1/route/x", "/v1/feedback/", "/v1/decisions"):
        answer = await shop.post(path, json=question())
        assert (answer.status_code, error_of(answer)["code"]) == (404, "caller_not_found"), path
