"""A repeated request with the same `Idempotency-Key` gets the first answer again."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.serving.call import Answer
from gateway.serving.idempotency import Idempotency
from gateway.wire.errors import ApiError
from tests.support.running import Running

CHAT = {"model": "mock-model", "messages": [{"role": "user", "content": "hi"}]}


async def test_a_repeat_gets_the_first_answer_and_the_backend_one_request(client: httpx.AsyncClient, mock: MockBackend) -> None:
    first = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k1"})
    again = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k1"})
    assert again.content == first.content
    assert again.headers["x-trilemma-replayed"] == "true"
    assert again.headers["x-trilemma-decision-id"] == first.headers["x-trilemma-decision-id"]
    assert len(mock.requests_to("/v1/chat/completions")) == 1
    other = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k2"})
    assert "x-trilemma-replayed" not in other.headers


async def test_a_repeat_while_the_first_runs_waits_for_it(client: httpx.AsyncClient, mock: MockBackend) -> None:
    mock.script(Behaviour(delay_headers_s=0.2))
    answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"}) for _ in range(5)))
    assert len({answer.content for answer in answers}) == 1
    assert len(mock.requests_to("/v1/chat/completions")) == 1


async def test_the_key_with_another_request_is_refused(client: httpx.AsyncClient) -> None:
    await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"})
    other = await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 3}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "caller_idempotency_conflict"


async def test_a_failure_is_not_kept(client: httpx.AsyncClient, mock: MockBackend) -> None:
    mock.script(Behaviour(status=500))
    failed = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"})
    assert failed.status_code == 500
    again = await client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"})
    assert again.status_code == 200


async def test_a_client_that_leaves_does_not_take_the_answer_from_the_one_that_waits(
    gateway: Running, client: httpx.AsyncClient, mock: MockBackend
) -> None:
    mock.script(Behaviour(never_answer=True))
    first = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"}))
    await mock.wait_for(lambda m: m.in_flight == 1)
    second = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT, headers={"Idempotency-Key": "k"}))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status_code == 200
    assert gateway.in_flight() == 0


async def test_bounds() -> None:
    runs = 0

    async def run() -> Answer:
        nonlocal runs
        runs += 1
        return Answer(200, [], b"x" * 10)

    kept = Idempotency(entries=2, max_bytes=25)
    for key in (b"a", b"b", b"c"):
        await kept.once("me", key, ("/", b""), run)
    await kept.once("me", b"c", ("/", b""), run)
    assert runs == 3
    await kept.once("me", b"a", ("/", b""), run)  # the oldest had to go
    assert runs == 4
    await kept.once("you", b"a", ("/", b""), run)  # another caller's keys are another's
    assert runs == 5
    with pytest.raises(ApiError):
        await kept.once("me", b"", ("/", b""), run)
