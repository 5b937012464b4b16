"""Limits over HTTP: every answer tells of them, and every way in which a request can end frees its place."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.mock import Behaviour, MockBackend
from gateway.pool.breaker import Breaker
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.databases import database, migrated, place, postgres, server
from tests.support.held import HeldBackend
from tests.support.raw import request, wire
from tests.support.running import Running, config_for, running
from tests.support.stored import Place
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

__all__ = ["database", "migrated", "place", "postgres", "server"]

TOLD = [f"x-ratelimit-{what}-{kind}" for kind in ("requests", "tokens") for what in ("limit", "remaining", "reset")]
ANSWER = '{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":20}}'


def key(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(f"sk-{name}".encode()).hexdigest(), "scopes": ["inference", "admin"]} | settings


KEYS = [
    key("free"),
    key("all", limits={"rpm": 1_000, "tpm": 1_000_000, "concurrency": 100}),
    key("rpm", limits={"rpm": 2}),
    key("tpm", limits={"tpm": 1_000}),
    key("small", limits={"tpm": 100}),
    key("asgi", limits={"concurrency": 1}),
    key("one", limits={"concurrency": 1}),
    key("team-1", tenant="team"),
    key("team-2", tenant="team"),
    key("old", expires="2020-01-01"),
    key("tagged", tags={"team": "red"}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend() -> AsyncIterator[MockBackend]:
    async with MockBackend(["mock-model"]) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(backend: MockBackend, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A gateway with a key for each kind of limit."""
    spec = {"url": backend.url, "engine": "vllm", "models": {"mock-model": "mock-model"}, "timeouts": {"first_byte_s": 0.5, "idle_s": 0.5}}
    limits = {"tenants": {"team": {"rpm": 3}}}
    models = {"mock-model": {"attempts": 1}}
    config = config_for({"mock": spec}, keys=KEYS, limits=limits, models=models, server={"max_body_bytes": 100_000})
    async with running(config, tmp_path_factory.mktemp("limits")) as found:
        await until(lambda: not found.gateway.state.unanswered(), "the first probe's end")
        yield found


@pytest.fixture
def mock(backend: MockBackend, run: Running) -> MockBackend:
    """Its records empty, its faults forgotten."""
    backend.reset()
    backend.script(default=Behaviour(body=ANSWER))
    for each in run.gateway.state.backends.values():
        each.breaker = Breaker(time.monotonic)
    return backend


async def ask(run: Running, name: str, path: str = CHAT, **extra: Any) -> httpx.Response:
    async with run.client(f"sk-{name}") as client:
        return await client.post(path, json=question(**extra))


def told(answer: httpx.Response) -> dict[str, str]:
    return {name.removeprefix("x-ratelimit-"): answer.headers[name] for name in TOLD if name in answer.headers}


# -- what is told


async def test_every_answer_of_a_limited_key_tells_how_much_is_left(mock: MockBackend, run: Running) -> None:
    async with run.client("sk-all") as client:
        mock.script(Behaviour(body=ANSWER), Behaviour(), Behaviour(status=500, body="{}"), Behaviour(status=422, body='{"error":{}}'))
        answers = {
            "whole": await client.post(CHAT, json=question()),
            "stream": await client.post(CHAT, json=question(stream=True)),
            "broken backend": await client.post(CHAT, json=question()),
            "refused by the backend": await client.post(CHAT, json=question()),
            "no JSON": await client.post(CHAT, content=b"{"),
            "unknown model": await client.post(CHAT, json={"model": "nobody"}),
            "unknown path": await client.post("/v1/nothing/here/", json={}),
            "method": await client.put(CHAT, json={}),
            "too large": await client.post(CHAT, content=b"x" * 100_001),
        }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "whole": 200,
        "stream": 200,
        "broken backend": 500,
        "refused by the backend": 422,
        "no JSON": 400,
        "unknown model": 404,
        "unknown path": 404,
        "method": 405,
        "too large": 413,
    }
    for name, answer in answers.items():
        assert [each for each in TOLD if each not in answer.headers] == [], name
        assert answer.headers["x-ratelimit-limit-tokens"] == "1000000"


async def test_nobody_else_is_told_and_nobody_else_is_ever_refused(mock: MockBackend, run: Running) -> None:
    mock.script(default=Behaviour(body='{"choices":[],"usage":{"prompt_tokens":999999999,"completion_tokens":999999999}}'))
    for _ in range(50):
        answer = await ask(run, "free", max_tokens=2**31 - 1)
        assert answer.status_code == 200
        assert told(answer) == {}


async def test_the_request_beyond_the_limit_is_refused_as_openai_refuses_it(mock: MockBackend, run: Running) -> None:
    first, second = await ask(run, "rpm"), await ask(run, "rpm")
    assert (first.status_code, told(first)["remaining-requests"]) == (200, "1")
    assert (second.status_code, told(second)["remaining-requests"]) == (200, "0")

    refused = await ask(run, "rpm")

    assert refused.status_code == 429
    error = error_of(refused)
    assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "rate_limit_exceeded", None)
    assert "requests per minute (RPM) of key `rpm`: limit 2, used 2" in error["message"]
    assert 55 <= int(refused.headers["retry-after"]) <= 61
    assert 55_000 <= int(refused.headers["retry-after-ms"]) <= 60_251
    assert told(refused)["remaining-requests"] == "0"
    assert all(name in refused.headers for name in ALWAYS)
    assert len(mock.requests) == 2
    assert run.settled[-1].code == "rate_limit_exceeded"


async def test_tokens_are_reserved_and_then_settled_with_those_that_were_used(mock: MockBackend, run: Running) -> None:
    first = await ask(run, "tpm", max_tokens=600)
    assert 300 < int(told(first)["remaining-tokens"]) < 400  # 600, and the prompt at four bytes a token
    second = await ask(run, "tpm", stream=True, max_tokens=10)
    left = int(told(second)["remaining-tokens"])
    assert 900 < left < 950 - 10  # the first came to 50
    refused = await ask(run, "tpm", max_tokens=960)
    assert refused.status_code == 429
    assert "tokens per minute (TPM) of key `tpm`: limit 1000, used " in error_of(refused)["message"]


async def test_what_can_never_fit_is_not_told_to_wait(mock: MockBackend, run: Running) -> None:
    refused = await ask(run, "small", max_tokens=101)

    assert refused.status_code == 429
    assert "larger than what may be used at all" in error_of(refused)["message"]
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"
    assert (await ask(run, "small", max_tokens=10)).status_code == 200
    assert (await ask(run, "small")).status_code == 200  # it names no bound, so it is not taken to want more than there is


async def test_the_keys_of_a_tenant_share_its_limit(mock: MockBackend, run: Running) -> None:
    answers = [await ask(run, name) for name in ("team-1", "team-2", "team-1", "team-2")]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert "of tenant `team`" in error_of(answers[-1])["message"]


async def test_a_backends_own_limits_are_told_to_those_who_have_no_others(mock: MockBackend, run: Running) -> None:
    limits = {"x-ratelimit-limit-requests": "7", "x-ratelimit-remaining-project-tokens": "9"}
    mock.script(*[Behaviour(body=ANSWER, headers=limits)] * 2)
    free, limited = await ask(run, "free"), await ask(run, "all")

    assert {name: free.headers[name] for name in limits} == limits
    assert limited.headers.get_list("x-ratelimit-limit-requests") == ["1000"]
    assert "x-ratelimit-remaining-project-tokens" not in limited.headers


async def test_a_backends_word_on_when_to_come_again_passes(mock: MockBackend, run: Running) -> None:
    mock.script(Behaviour(status=429, body='{"error":{}}', headers={"retry-after": "7", "retry-after-ms": "6500"}))
    answer = await ask(run, "all")

    assert (answer.status_code, answer.headers["retry-after"], answer.headers["retry-after-ms"]) == (429, "7", "6500")


# -- places

ENDS: dict[str, tuple[dict[str, Any], Behaviour, int]] = {
    "whole": ({}, Behaviour(body=ANSWER), 200),
    "stream": ({"stream": True}, Behaviour(), 200),
    "the backend's error": ({}, Behaviour(status=400, body='{"error":{}}'), 400),
    "a broken backend": ({}, Behaviour(status=503, body="{}"), 503),
    "a reset before the answer": ({}, Behaviour(reset_after_events=-1, times=2), 502),
    "a reset in the stream": ({"stream": True}, Behaviour(reset_after_events=1), 200),
    "silence before the answer": ({}, Behaviour(never_answer=True), 504),
    "silence in the stream": ({"stream": True}, Behaviour(stall_after_events=1), 200),
    "a passed deadline": ({"trilemma": {"deadline_ms": 50}}, Behaviour(never_answer=True), 504),
    "a bad option": ({"trilemma": {"zz": 1}}, Behaviour(body=ANSWER), 400),
    "a bad field": ({"n": "many"}, Behaviour(body=ANSWER), 400),
    "an unknown model": ({"model": "nobody"}, Behaviour(body=ANSWER), 404),
    "only tried": ({"trilemma": {"dry_run": True}}, Behaviour(body=ANSWER), 200),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("chunked", [False, True], ids=["short way", "ASGI"])
async def test_a_place_is_free_when_its_request_has_ended(mock: MockBackend, run: Running, how: str, chunked: bool) -> None:
    extra, behaviour, status = ENDS[how]
    body = json.dumps(question() | extra).encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async with run.client("sk-one") as client:
        for _ in range(2):
            mock.script(behaviour)
            answer = await client.post(CHAT, content=pieces() if chunked else body)
            assert answer.status_code == status, answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["one", "asgi"])
async def test_a_place_is_free_when_the_caller_has_left(mock: MockBackend, run: Running, stream: bool, name: str) -> None:
    mock.script(Behaviour(stall_after_events=1) if stream else Behaviour(never_answer=True))
    ended = len(run.settled)
    async with wire(run.url) as connection:
        body = json.dumps(question(stream=stream)).encode()
        head = request(body).replace(b"Bearer sk-test", f"Bearer sk-{name}".encode())
        if name == "asgi":
            head = head.replace(b"content-type", b"expect: 100-continue\r\ncontent-type")
        connection.send(head)
        await mock.wait_for(lambda m: m.in_flight == 1)
        assert (await ask(run, name)).status_code == 429
        connection.reset()
        await run.until_settled(ended + 2)
    assert (await ask(run, name)).status_code == 200


async def test_a_stream_keeps_its_place_until_its_end(tmp_path: Path) -> None:
    async with HeldBackend() as held:
        config = config_for({"held": held_by(held)}, keys=[key("one", limits={"concurrency": 1})])
        async with running(config, tmp_path) as run, run.client("sk-one") as client:
            async with client.stream("POST", CHAT, json=question(stream=True)) as answer:
                events = answer.aiter_lines()
                assert "one" in await anext(events)
                refused = await client.post(CHAT, json=question())
                assert refused.status_code == 429
                assert "requests at once of key `one`: limit 1, used 1" in error_of(refused)["message"]
                assert refused.headers["retry-after"] == "1"
                held.go.set()
                assert "[DONE]" in "".join([line async for line in events])
            await run.until_settled(2)
            assert (await client.post(CHAT, json=question())).status_code == 200


async def test_of_fifty_at_once_one_is_served_if_that_is_the_limit(tmp_path: Path) -> None:
    async with HeldBackend() as held:
        config = config_for({"held": held_by(held)}, keys=[key("one", limits={"concurrency": 1})])
        async with running(config, tmp_path) as run:
            await served_of_fifty(held, [run])


def held_by(held: HeldBackend) -> dict[str, Any]:
    return {"url": held.url, "models": {"mock-model": "mock-model"}}


async def served_of_fifty(held: HeldBackend, runs: list[Running]) -> None:
    """Asks these gateways fifty times at once, with the key `one`: one is served, which ends when all others have their answer."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(run.client("sk-one")) for run in runs]
        tasks = [asyncio.create_task(clients[n % len(clients)].post(CHAT, json=question())) for n in range(50)]
        await until(lambda: sum(task.done() for task in tasks) == 49, "all but one have their answer", 30)
        assert held.begun == 1
        held.go.set()
        assert Counter([(await task).status_code for task in tasks]) == {200: 1, 429: 49}


@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"rpm": 1}], ids=str)
async def test_of_fifty_at_once_over_two_gateways_one_is_served(place: Place, tmp_path: Path, limits: dict[str, int]) -> None:
    """They share a database; the second takes the place when the first has ended."""
    async with HeldBackend() as held:
        config = config_for(
            {"held": held_by(held)},
            keys=[key("one", limits=limits)],
            storage={"url": place.url},
            server={"workers": 2},
        )
        async with running(config, tmp_path / "a") as first, running(config, tmp_path / "b") as second:
            await served_of_fifty(held, [first, second])
            if "concurrency" in limits:
                for run in (second, first, second):
                    assert (await ask(run, "one")).status_code == 200
            assert (await ask(first, "one")).headers.get("x-ratelimit-limit-requests") == ("1" if "rpm" in limits else None)


async def test_without_their_database_limits_go_on_and_ready_says_so(database: Path, tmp_path: Path) -> None:
    """Inference does not wait for it but once."""
    config = config_for(
        {"mock": {"url": "http://127.0.0.1:9", "models": {"mock-model": "mock-model"}}},
        keys=[key("rpm", limits={"rpm": 2})],
        storage={"url": f"sqlite:///{database}"},
        server={"workers": 2},
    )
    async with running(config, tmp_path) as run, run.client("sk-rpm") as client:
        while (await client.get("/ready")).json()["degraded"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # both writers of the file have just opened it
        shutil.move(database, database.with_suffix(".gone"))
        answers = [await client.post(CHAT, json=question()) for _ in range(3)]
        assert [answer.status_code == 429 for answer in answers] == [False, False, True]  # the backend is not there
        degraded = (await client.get("/ready")).json()["degraded"]
        assert "limits: each process counts for itself" in degraded


# -- keys


async def test_a_key_that_has_expired_is_told_so(run: Running) -> None:
    answer = await ask(run, "old")

    assert answer.status_code == 401
    assert (error_of(answer)["code"], error_of(answer)["message"]) == ("invalid_api_key", "This API key has expired.")


async def test_a_keys_tags_are_its_decisions_and_nobody_can_change_them(mock: MockBackend, run: Running) -> None:
    await ask(run, "tagged", trilemma={"tags": {"team": "blue", "job": "7"}})
    assert run.settled[-1].tags == {"team": "red", "job": "7"}
    await ask(run, "tagged")
    assert run.settled[-1].tags == {"team": "red"}


async def test_who_the_end_user_is_passes_untouched(mock: MockBackend, run: Running) -> None:
    body = b'{"model":"mock-model","messages":[], "user":"u\\u00e9 ",\n"safety_identifier":"s-1"}'
    async with run.client("sk-all") as client:
        assert (await client.post(CHAT, content=body)).status_code == 200
    assert mock.requests[-1].body == body


async def test_the_header_of_anthropics_clients_opens_too(mock: MockBackend, run: Running) -> None:
    good, bad = "sk-free", "sk-wrong"
    both = {"x-api-key": good, "authorization": f"Bearer {good}"}
    async with httpx.AsyncClient(base_url=run.url) as client:
        for headers, status in (
            ({"x-api-key": good}, 200),
            (both, 200),
            ({"x-api-key": bad}, 401),
            (both | {"x-api-key": bad}, 401),
            (both | {"authorization": f"Bearer {bad}"}, 401),
            (both | {"x-api-key": "sk-all"}, 401),
            ({"x-api-key": f"Bearer {good}"}, 401),
            ({"x-api-key": ""}, 401),
        ):
            answer = await client.post("/v1/messages", json=question(max_tokens=5), headers=headers)
            assert answer.status_code == status, headers
    assert not any("x-api-key" in request.headers for request in mock.requests)


async def test_wrong_keys_are_slowed_down_good_ones_are_not(mock: MockBackend, tmp_path: Path) -> None:
    spec = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}}
    async with (
        running(config_for({"mock": spec}, limits={"failed_keys_per_minute": 3}), tmp_path) as run,
        run.client("sk-wrong") as wrong,
        run.client() as good,
        httpx.AsyncClient(base_url=run.url) as none,
    ):
        tries = [wrong.post(CHAT, json=question()), wrong.get("/v1/models"), wrong.get("/admin/config"), wrong.get("/metrics")]
        answers = [await each for each in tries] + [await wrong.post(CHAT, json=question())]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
        for answer in answers[3:]:
            assert error_of(answer)["code"] == "rate_limit_exceeded"
            assert "incorrect API keys" in error_of(answer)["message"]
            assert 55 <= int(answer.headers["retry-after"]) <= 61
        assert (await good.post(CHAT, json=question())).status_code == 200
        assert (await good.get("/admin/config")).status_code == 200
        assert (await none.post(CHAT, json=question())).status_code == 401
