"""Backends that die, fail for ever, or no longer have the model: calls go where they are served, and come back when the backend does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import CHAT, MESSAGES
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

UNKNOWN = Behaviour(status=404, body='{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","code":404}}')
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@dataclass
class Pool:
    """Mocks a, b and c that serve `m`, and a gateway over them that leaves what failed alone for long."""

    mocks: dict[str, MockBackend]
    run: Running
    client: httpx.AsyncClient

    async def ask(self, **extra: Any) -> httpx.Response:
        return await self.client.post(CHAT, json={"model": "m", "messages": MESSAGES, "max_tokens": 2, **extra})

    def asked(self, name: str) -> int:
        return len(self.mocks[name].requests_to(CHAT))

    def states(self) -> dict[str, str]:
        """Of each backend's breaker."""
        return {name: backend.breaker.state for name, backend in self.run.gateway.state.backends.items()}

    async def until_probed(self) -> None:
        """Every backend has answered, so that none is thought to be still starting."""
        await until(lambda: all(backend.answered for backend in self.run.gateway.state.backends.values()), "the first probes")


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    async with AsyncExitStack() as stack:
        mocks = {name: await stack.enter_async_context(MockBackend(["m"])) for name in "abc"}
        backend = {"engine": "vllm", "models": {"m": "m"}, "breaker": {"first_s": 600, "longest_s": 600}}
        config = config_for({name: {"url": mock.url, **backend} for name, mock in mocks.items()})
        run = await stack.enter_async_context(running(config, tmp_path))
        found = Pool(mocks, run, await stack.enter_async_context(run.client()))
        await found.until_probed()
        yield found
        assert run.in_flight() == 0


@STREAMED
async def test_one_is_killed_and_one_lacks_the_model(pool: Pool, stream: bool) -> None:
    """The third serves all: 200 calls, some under way as the first one dies, and not one caller is told of it."""
    pool.mocks["b"].script(default=UNKNOWN)
    pool.mocks["a"].script(default=Behaviour(never_answer=True))  # so that some are under way
    first = [asyncio.create_task(pool.ask(stream=stream)) for _ in range(100)]
    await pool.mocks["a"].wait_for(lambda m: len(m.requests_to(CHAT)) >= 3)
    await pool.mocks["a"].aclose()
    answers = await asyncio.gather(*first, *(pool.ask(stream=stream) for _ in range(100)))
    assert Counter(answer.status_code for answer in answers) == {200: 200}
    assert all(b"error" not in answer.content for answer in answers)
    assert not stream or all(answer.content.endswith(b"data: [DONE]\n\n") for answer in answers)
    assert pool.asked("c") == 200
    assert pool.states() == {"a": "open", "b": "closed", "c": "closed"}, "the second may serve other models well"


async def test_one_that_is_dead_costs_at_most_one_call_an_attempt(pool: Pool) -> None:
    """The first call to find nobody there goes on to another replica; those after it do not try."""
    await pool.mocks["a"].aclose()
    attempts = Counter([(await pool.ask()).headers["x-trilemma-attempts"] for _ in range(40)])
    assert attempts["1"] >= 39
    assert attempts["1"] + attempts["2"] == 40


async def test_one_that_comes_back_is_used_again(tmp_path: Path) -> None:
    """Killed and started again on its port: calls go there again, and none of them was lost in between."""
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(MockBackend(["m"])) for _ in range(2)]
        backend = {"engine": "vllm", "models": {"m": "m"}, "breaker": {"first_s": 0.2, "longest_s": 0.2}}
        config = config_for({"a": {"url": one.url, **backend}, "b": {"url": two.url, **backend}})
        run = await stack.enter_async_context(running(config, tmp_path))
        pool = Pool({"a": one, "b": two}, run, await stack.enter_async_context(run.client()))
        await pool.until_probed()
        port = int(one.url.rpartition(":")[2])
        await one.aclose()
        while pool.states()["a"] == "closed":
            assert (await pool.ask()).status_code == 200
        async with MockBackend(["m"], port=port) as again:
            async with asyncio.timeout(20):
                while not again.requests_to(CHAT):
                    assert (await pool.ask()).status_code == 200
            assert pool.states()["a"] == "closed"


async def test_one_that_always_fails_is_left_alone(pool: Pool) -> None:
    """Three errors in a row are enough: of 60 calls it hears three, and all are served."""
    pool.mocks["a"].script(default=Behaviour(status=500))
    assert {(await pool.ask()).status_code for _ in range(60)} == {200}
    assert pool.asked("a") == 3
    assert pool.states() == {"a": "open", "b": "closed", "c": "closed"}


async def test_the_only_one_fails_for_ever(tmp_path: Path) -> None:
    """Each caller gets its error or, while the backend is left alone, the time to come back; no call is made twice."""
    async with MockBackend(["m"], default=Behaviour(status=500)) as mock:
        config = config_for({"a": {"url": mock.url, "models": {"m": "m"}}})
        async with running(config, tmp_path) as run, run.client() as client:
            pool = Pool({"a": mock}, run, client)
            await pool.until_probed()
            answers = await asyncio.gather(*(pool.ask() for _ in range(25)), *(pool.ask(stream=True) for _ in range(25)))
            assert {answer.status_code for answer in answers} <= {500, 503}
            for answer in answers:
                assert answer.status_code == 500 or int(answer.headers["retry-after"]) >= 1
            assert pool.asked("a") == sum(answer.status_code == 500 for answer in answers)
