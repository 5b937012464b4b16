"""A new configuration is taken up while requests run: all of it or nothing, and nobody who is being served notices."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, error_of, question
from tests.support.raw import wire
from tests.support.running import DIGEST, KEY, Running, config_for, running
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASK = json.dumps(question(stream=True)).encode()
EVENTS = tuple(json.dumps({"choices": [{"index": 0, "delta": {"content": f"w{k}"}, "finish_reason": None}]}) for k in range(4))


@pytest_asyncio.fixture(loop_scope="module")
async def own(mock: MockBackend, tmp_path: Path) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """A gateway of this test's own, whose configuration may change."""
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}})
    async with running(config, tmp_path) as run, run.client() as client:
        yield run, client


async def reload(client: httpx.AsyncClient, status: int = 200) -> dict[str, Any]:
    answer = await client.post("/admin/config/reload")
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def names(client: httpx.AsyncClient) -> list[str]:
    return [card["id"] for card in (await client.get("/v1/models")).json()["data"]]


async def test_a_model_more_and_a_model_less(own: tuple[Running, httpx.AsyncClient], mock: MockBackend) -> None:
    run, client = own
    before = (await client.get("/admin/config")).json()
    run.config["models"] = {"mock-model": {"aliases": ["short"]}}
    run.config["backends"]["a"]["models"]["more"] = "mock-model"
    after = await reload(client)
    assert after["hash"] != before["hash"]
    assert after["loaded_at"] >= before["loaded_at"]
    assert after["last_error"] is None
    assert await names(client) == ["mock-model", "more", "short"]
    assert (await client.post(CHAT, json=question(model="more"))).status_code == 200
    run.config["models"] = {}
    run.config["backends"]["a"]["models"] = {"more": "mock-model"}
    await reload(client)
    assert await names(client) == ["more"]
    assert (await client.post(CHAT, json=question())).json()["error"]["code"] == "model_not_found"


async def test_the_same_again_changes_nothing(own: tuple[Running, httpx.AsyncClient]) -> None:
    run, client = own
    state = run.gateway.state
    before = (await client.get("/admin/config")).json()
    after = await reload(client)
    assert after["hash"] == before["hash"]
    assert run.gateway.state.backends["a"] is state.backends["a"]


@pytest.mark.parametrize(
    "change",
    [
        {"backends": {}},
        {"backends": {"a": {"url": "ftp://x", "models": {"m": "m"}}}},
        {"modles": {}},
        {"version": 2},
        {"virtual_models": {"auto": {"policy": "nobody", "plans": {"a": {"model": "mock-model"}}}}},
        {"virtual_models": {"auto": {"policy": "fixed", "plans": {"a": {"model": "nobody"}}}}},
        {"models": {"mock-model": {"aliases": ["mock-model"]}}},
        {
            "policies": {"p": {"type": "weighted", "params": {"weights": {"a": -1}}}},
            "virtual_models": {"auto": {"policy": "p", "plans": {"a": {"model": "mock-model"}}}},
        },
        {"keys": [{"name": "x", "sha256": "short"}]},
    ],
    ids=lambda change: next(iter(change)) if isinstance(change, dict) else None,
)
async def test_what_cannot_work_is_not_taken_up(own: tuple[Running, httpx.AsyncClient], change: dict[str, Any]) -> None:
    """The old configuration serves on, and what was wrong with the new one can be seen until a good one comes."""
    run, client = own
    good, state = run.config, run.gateway.state
    run.config = {**good, **change}
    problem = await reload(client, 400)
    assert problem["error"]["code"] == "gateway_reload_failed"
    shown = (await client.get("/admin/config")).json()
    assert shown["last_error"]
    assert shown["hash"] == state.hash
    assert run.gateway.state is state
    assert (await client.post(CHAT, json=question())).status_code == 200
    run.config = good
    assert (await reload(client))["last_error"] is None
    assert (await client.get("/admin/config")).json()["last_error"] is None


async def test_a_stream_survives(own: tuple[Running, httpx.AsyncClient], mock: MockBackend) -> None:
    """It goes on over its socket, and stays counted: its backend's settings are the same."""
    run, client = own
    mock.script(Behaviour(events=EVENTS, stall_after_events=2, stall_s=0.3))
    async with wire(run.url) as stream:
        stream.post(ASK)
        await stream.head()
        seen = await stream.chunk()
        run.config["models"] = {"mock-model": {"aliases": ["short"]}}
        await reload(client)
        assert run.in_flight() == 1
        assert (await client.get("/admin/backends")).json()["data"][0]["in_flight"] == 1
        while piece := await stream.chunk():
            seen += piece
    for each in EVENTS:
        assert each.encode() in seen
    await until(lambda: run.in_flight() == 0, "the stream's end")


@pytest.mark.parametrize("change", ["removed", "moved"])
async def test_a_stream_survives_its_backend_s_removal(own: tuple[Running, httpx.AsyncClient], mock: MockBackend, change: str) -> None:
    """New requests go where the new configuration says; what runs is not torn down, and its end is counted where it began."""
    run, client = own
    old = run.gateway.state.backends["a"]
    async with MockBackend(["mock-model"]) as other:
        mock.script(Behaviour(events=EVENTS, stall_after_events=2, stall_s=0.3))
        async with wire(run.url) as stream:
            stream.post(ASK)
            await stream.head()
            seen = await stream.chunk()
            name = "b" if change == "removed" else "a"
            run.config["backends"] = {name: {"url": other.url, "models": {"mock-model": "mock-model"}}}
            await reload(client)
            assert [each["name"] for each in (await client.get("/admin/backends")).json()["data"]] == [name]
            assert (await client.post(CHAT, json=question())).status_code == 200
            assert len(other.requests_to(CHAT)) == 1
            assert (old.in_flight, run.in_flight()) == (1, 0)
            while piece := await stream.chunk():
                seen += piece
        assert all(each.encode() in seen for each in EVENTS)
        await until(lambda: old.in_flight == 0, "the stream's end")
        assert run.in_flight() == 0


async def test_a_removed_backend_is_probed_no_more(own: tuple[Running, httpx.AsyncClient], mock: MockBackend) -> None:
    run, client = own

    def probes() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("probe ")}

    run.config["backends"]["gone"] = {"url": "http://127.0.0.1:9", "models": {"other": "other"}}
    await reload(client)
    await until(lambda: {"probe a", "probe gone"} <= probes(), "both are probed")
    assert (await client.get("/ready")).json()["reasons"] == ["no backend of `other` has answered"]
    del run.config["backends"]["gone"]
    await reload(client)
    await until(lambda: "probe gone" not in probes(), "the end of its probe")
    await until(lambda: not run.gateway.state.unanswered(), "the other's answer")
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["reasons"]) == (200, [])


async def test_keys_change_at_once(own: tuple[Running, httpx.AsyncClient]) -> None:
    run, client = own
    run.config["keys"] = [{"name": "new", "sha256": hashlib.sha256(b"sk-new").hexdigest(), "scopes": ["inference", "admin"]}]
    await reload(client)
    assert (await client.post(CHAT, json=question())).status_code == 401
    assert (await client.get("/admin/config")).status_code == 401
    async with run.client("sk-new") as fresh:
        assert (await fresh.post(CHAT, json=question())).status_code == 200
        run.config["keys"] = [{"name": "test", "sha256": DIGEST, "scopes": ["inference"]}]
        await reload(fresh)
        assert (await fresh.post(CHAT, json=question())).status_code == 401
    assert (await client.post(CHAT, json=question())).status_code == 200


async def test_a_backend_s_key_changes(own: tuple[Running, httpx.AsyncClient], mock: MockBackend) -> None:
    run, client = own
    for key in ("sk-one", "sk-two"):
        run.config["backends"]["a"]["key"] = key
        await reload(client)
        await client.post(CHAT, json=question())
        assert mock.requests_to(CHAT)[-1].header("authorization") == f"Bearer {key}"


async def test_many_reloads_at_once(own: tuple[Running, httpx.AsyncClient]) -> None:
    """One after the other, while requests run: none is lost."""
    run, client = own

    async def change(number: int) -> None:
        run.config["models"] = {"mock-model": {"aliases": [f"alias-{number}"]}}
        await reload(client)

    answers, *_ = await asyncio.gather(
        asyncio.gather(*(client.post(CHAT, json=question(max_tokens=2)) for _ in range(30))), *(change(number) for number in range(10))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert run.in_flight() == 0
    assert len(await names(client)) == 2
    assert sum(task.get_name() == "probe a" for task in asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"mock-model": {"queue": {"slots": 5, "room": 5, "weights": {"shop": 0}}}},
        {"mock-model": {"queue": {"slots": 5, "room": 5}}, "more": {"queue": {"slots": 1, "weights": {"shop": 0}}}},
    ],
    ids=["its own are wrong", "another one's are"],
)
async def test_a_queue_takes_up_new_bounds_with_the_whole_configuration_or_not_at_all(
    own: tuple[Running, httpx.AsyncClient], mock: MockBackend, wrong: dict[str, Any]
) -> None:
    """A call that runs stays counted; what cannot be a weight is found when the new state is built, late."""
    run, client = own
    run.config["backends"]["a"]["models"]["more"] = "mock-model"
    run.config["models"] = {"mock-model": {"queue": {"slots": 1, "room": 0}}}
    await reload(client)
    mock.script(Behaviour(stall_after_events=2))
    async with client.stream("POST", CHAT, json=question(stream=True)) as answer:
        assert answer.status_code == 200
        state = run.gateway.state
        run.config["models"] = wrong
        problem = await reload(client, 400)
        assert problem["error"]["code"] == "gateway_reload_failed"
        assert run.gateway.state is state
        assert (await client.post(CHAT, json=question())).status_code == 503, "one slot, and it is taken"
        run.config["models"] = {"mock-model": {"queue": {"slots": 2, "room": 0}}}
        await reload(client)
        assert (await client.post(CHAT, json=question())).status_code == 200
        run.config["models"] = {"mock-model": {"queue": {"slots": 1, "room": 0}}}
        await reload(client)
        assert (await client.post(CHAT, json=question())).status_code == 503
    await until(lambda: run.in_flight() == 0, "the stream's end")
    assert (await client.post(CHAT, json=question())).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("GET", "/admin/config"), ("POST", "/admin/config/reload"), ("GET", "/admin/backends")])
async def test_an_inference_key_opens_no_administration(mock: MockBackend, tmp_path: Path, method: str, path: str) -> None:
    config = config_for({"a": {"url": mock.url, "models": {"mock-model": "mock-model"}}})
    config["keys"] = [
        {"name": "u", "sha256": DIGEST, "scopes": ["inference"]},
        {"name": "a", "sha256": hashlib.sha256(b"sk-admin").hexdigest(), "scopes": ["admin"]},
    ]
    async with running(config, tmp_path) as run, run.client(KEY) as user, run.client("sk-admin") as admin:
        before = run.gateway.state
        refused = await user.request(method, path)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "caller_forbidden_scope")
        assert run.gateway.state is before
        assert (await admin.request(method, path)).status_code == 200
        refused = await admin.post(CHAT, json=question())
        assert (refused.status_code, error_of(refused)["code"]) == (403, "caller_forbidden_scope")
