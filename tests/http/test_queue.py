"""A model with a queue: as many calls at once as it has slots, the others wait their turn, and none too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def queued(tmp_path: Path) -> AsyncIterator[tuple[MockBackend, Running, httpx.AsyncClient]]:
    """One slot, room for two, and a mock that answers when it is told to."""
    async with MockBackend(["m"]) as mock:
        config = config_for(
            {"mock": {"url": mock.url, "engine": "vllm", "models": {"m": "m"}}},
            models={"m": {"queue": {"slots": 1, "room": 2, "wait_s": 20}}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            yield mock, run, client


def waiting(run: Running) -> int:
    model = run.gateway.state.names["m"]
    admission = getattr(model, "admission", None)
    assert admission is not None
    return int(admission.waiting)


async def hold(mock: MockBackend, client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
    """A call that has the slot until it is cancelled."""
    mock.script(Behaviour(never_answer=True))
    task = asyncio.create_task(client.post(CHAT, json=ASK))
    await mock.wait_for(lambda m: len(m.requests_to(CHAT)) == 1)
    return task


async def test_the_next_one_goes_when_the_first_has_left(queued: tuple[MockBackend, Running, httpx.AsyncClient]) -> None:
    mock, run, client = queued
    first = await hold(mock, client)
    second = asyncio.create_task(client.post(CHAT, json=ASK))
    await until(lambda: waiting(run) == 1)
    assert len(mock.requests_to(CHAT)) == 1
    first.cancel()
    assert (await second).status_code == 200
    await until(lambda: run.in_flight() == 0)


async def test_no_room_is_a_503_that_says_when(queued: tuple[MockBackend, Running, httpx.AsyncClient]) -> None:
    mock, run, client = queued
    first = await hold(mock, client)
    others = [asyncio.create_task(client.post(CHAT, json=ASK)) for _ in range(2)]
    await until(lambda: waiting(run) == 2)
    refused = await client.post(CHAT, json=ASK)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_overloaded")
    assert int(refused.headers["retry-after"]) >= 1
    first.cancel()
    assert [answer.status_code for answer in await asyncio.gather(*others)] == [200, 200]


async def test_a_client_that_leaves_the_queue_leaves_nothing(queued: tuple[MockBackend, Running, httpx.AsyncClient]) -> None:
    mock, run, client = queued
    first = await hold(mock, client)
    second = asyncio.create_task(client.post(CHAT, json=ASK))
    await until(lambda: waiting(run) == 1)
    second.cancel()
    await until(lambda: waiting(run) == 0)
    await run.until_settled(1)
    assert run.settled[0].outcome == "client_closed"
    assert len(mock.requests_to(CHAT)) == 1, "the engine never heard of it"
    first.cancel()
    assert (await client.post(CHAT, json=ASK)).status_code == 200


async def test_a_deadline_holds_in_the_queue_too(queued: tuple[MockBackend, Running, httpx.AsyncClient]) -> None:
    mock, _, client = queued
    first = await hold(mock, client)
    late = await client.post(CHAT, json=ASK | {"trilemma": {"deadline_ms": 50}})
    assert (late.status_code, late.json()["error"]["code"]) == (504, "gateway_deadline")
    first.cancel()


async def test_a_stream_keeps_its_slot_to_its_end(queued: tuple[MockBackend, Running, httpx.AsyncClient]) -> None:
    mock, run, client = queued
    mock.script(Behaviour(stall_after_events=2))
    async with client.stream("POST", CHAT, json=ASK | {"stream": True}) as answer:
        assert answer.status_code == 200
        second = asyncio.create_task(client.post(CHAT, json=ASK))
        await until(lambda: waiting(run) == 1)
    assert (await second).status_code == 200
