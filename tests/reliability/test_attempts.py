"""One request makes as many calls as it may, never more: its attempts have one owner, and end with the caller's interest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, InternalServerError

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, question
from tests.support.raw import wire
from tests.support.running import KEY, Running, config_for, running
from tests.support.waiting import until

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@dataclass
class Pool:
    """Mocks that serve `mock-model`, and a gateway over them."""

    mocks: list[MockBackend]
    run: Running
    client: httpx.AsyncClient

    def asked(self) -> list[int]:
        return [len(mock.requests_to(CHAT)) for mock in self.mocks]


Replicas = Callable[..., AbstractAsyncContextManager[Pool]]


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    """A pool of so many mocks which all do the same. model: what is configured of it; more of each backend."""

    @asynccontextmanager
    async def start(count: int, default: Behaviour, model: dict[str, Any], **backend: Any) -> AsyncIterator[Pool]:
        async with AsyncExitStack() as stack:
            mocks = [await stack.enter_async_context(MockBackend(["mock-model"], default=default)) for _ in range(count)]
            backends = {f"b{n}": {"url": m.url, "models": {"mock-model": "mock-model"}} | backend for n, m in enumerate(mocks)}
            run = await stack.enter_async_context(running(config_for(backends, models={"mock-model": model}), tmp_path))
            await until(lambda: all(backend.answered for backend in run.gateway.state.backends.values()), "the first probes")
            yield Pool(mocks, run, await stack.enter_async_context(run.client()))
            assert run.in_flight() == 0

    return start


FAULTS = {
    "500": Behaviour(status=500),
    "503": Behaviour(status=503),
    "429": Behaviour(status=429),
    "reset": Behaviour(reset_after_events=-1),
    "not HTTP": Behaviour(raw=b"garbage\r\n\r\n"),
}


@STREAMED
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_each_replica_is_asked_once(replicas: Replicas, fault: Behaviour, stream: bool) -> None:
    """Four replicas fail, three calls may be made: three are, to three of them, and header and receipt say so."""
    async with replicas(4, fault, {"attempts": 3}) as pool:
        await asks_so_often(pool, stream, 3)


@STREAMED
@pytest.mark.parametrize(("attempts", "count", "calls"), [(1, 4, 1), (2, 4, 2), (20, 4, 4), (3, 1, 1)])
async def test_so_many_calls_and_no_more(replicas: Replicas, attempts: int, count: int, calls: int, stream: bool) -> None:
    """However many replicas fail, and however many calls there might be."""
    async with replicas(count, Behaviour(status=500), {"attempts": attempts}) as pool:
        await asks_so_often(pool, stream, calls)


async def asks_so_often(pool: Pool, stream: bool, calls: int) -> None:
    """One request fails after so many calls, no two of them to the same backend."""
    answer = await pool.client.post(CHAT, json=question(stream=stream))
    assert answer.status_code in (429, 500, 502, 503)
    assert (sum(pool.asked()), max(pool.asked())) == (calls, 1)
    assert answer.headers["x-trilemma-attempts"] == str(calls)
    await pool.run.until_settled(1)
    assert (pool.run.settled[0].attempts, len(pool.run.settled[0].calls)) == (calls, calls)


@STREAMED
async def test_a_replica_that_asks_to_be_asked_again_is(replicas: Replicas, stream: bool) -> None:
    """Also then the calls are counted: three in all, though it would go on for ever."""
    async with replicas(1, Behaviour(status=503, headers={"retry-after-ms": "1"}), {"attempts": 3}) as pool:
        answer = await pool.client.post(CHAT, json=question(stream=stream))
        assert (answer.status_code, answer.headers["retry-after-ms"], answer.headers["x-trilemma-attempts"]) == (503, "1", "3")
        assert pool.asked() == [3]


async def test_a_client_library_does_not_ask_again_what_took_too_long(replicas: Replicas) -> None:
    """The official one would repeat a 504 twice; it is told not to, so the backend hears one call."""
    slow: dict[str, Any] = {"timeouts": {"first_byte_s": 0.2}}
    async with replicas(1, Behaviour(never_answer=True), {}, **slow) as pool:
        async with AsyncOpenAI(base_url=pool.run.url + "/v1", api_key=KEY) as sdk:
            assert sdk.max_retries == 2
            with pytest.raises(InternalServerError) as told:
                await sdk.chat.completions.create(model="mock-model", messages=[{"role": "user", "content": "hi"}])
        assert (told.value.status_code, told.value.code) == (504, "backend_timeout")
        await pool.mocks[0].wait_for(lambda m: m.in_flight == 0)
        assert pool.asked() == [1]


async def test_a_pause_that_outlasts_the_deadline_is_not_waited_for(replicas: Replicas) -> None:
    """The backend wants 3 s and the caller gives 1 s: it hears at once what the backend said, in the backend's words."""
    hints = {"retry-after": "3", "x-ratelimit-reset-requests": "3s"}
    async with replicas(1, Behaviour(status=429, headers=hints, body='{"error":{"message":"slow down"}}'), {}) as pool:
        answer = await pool.client.post(CHAT, json=question(), headers={"x-trilemma-deadline-ms": "1000"})
        assert (answer.status_code, answer.json()) == (429, {"error": {"message": "slow down"}})
        assert {name: answer.headers[name] for name in hints} == hints
        assert pool.asked() == [1]


@STREAMED
async def test_a_client_that_leaves_while_a_pause_is_waited_for(replicas: Replicas, stream: bool) -> None:
    """The wait ends with it: the backend is not asked again, and no task is left."""
    patience = Behaviour(status=429, headers={"retry-after": "4"}, close_connection_after="header")
    async with replicas(1, patience, {"retry_wait_s": 5}) as pool:
        tasks = len(asyncio.all_tasks())
        async with wire(pool.run.url) as client:
            client.post(json.dumps(question(stream=stream)).encode())
            await pool.mocks[0].wait_for(lambda m: bool(m.requests_to(CHAT)) and m.in_flight == 0)
            await until(lambda: pool.run.in_flight() == 0, "the answer is read")
            assert not pool.run.settled, "it waits"
            client.close()
            await pool.run.until_settled(1)
        assert (pool.run.settled[0].outcome, pool.run.settled[0].attempts) == ("client_closed", 1)
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "all tasks' end")
        assert pool.asked() == [1]


@STREAMED
async def test_a_client_that_leaves_while_another_replica_is_asked(replicas: Replicas, stream: bool) -> None:
    """The second backend hears it as the first one would."""
    async with replicas(2, Behaviour(status=500), {}) as pool:
        second = pool.run.gateway.state.backends["b1"]
        second.in_flight += 1  # so that the other one is asked first
        pool.mocks[1].script(default=Behaviour(never_answer=True))
        async with wire(pool.run.url) as client:
            client.post(json.dumps(question(stream=stream)).encode())
            await pool.mocks[1].wait_for(lambda m: bool(m.requests_to(CHAT)))
            client.reset()
            await pool.mocks[1].wait_for(lambda m: m.aborted == 1)
            await pool.run.until_settled(1)
        second.in_flight -= 1
        assert (pool.run.settled[0].outcome, pool.run.settled[0].attempts) == ("client_closed", 2)
        assert pool.asked() == [1, 1]
