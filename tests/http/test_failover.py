"""Several replicas: what one of them gets wrong costs the caller nothing, as long as no byte of an answer has gone out."""

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
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Pool:
    """Three mocks a, b, c that serve `m`, and a gateway over them."""

    mocks: dict[str, MockBackend]
    run: Running
    client: httpx.AsyncClient

    def all(self, *behaviours: Behaviour) -> None:
        for mock in self.mocks.values():
            mock.script(*behaviours)

    def asked(self) -> dict[str, int]:
        return {name: len(mock.requests_to(CHAT)) for name, mock in self.mocks.items()}

    def busy(self, **in_flight: int) -> None:
        """Makes the others the less loaded, so that the choice is known."""
        for name, count in in_flight.items():
            self.run.gateway.state.backends[name].in_flight += count


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    async with AsyncExitStack() as stack:
        mocks = {name: await stack.enter_async_context(MockBackend(["m"])) for name in "abc"}
        config = config_for(
            {name: {"url": mock.url, "engine": "vllm", "models": {"m": "m"}} for name, mock in mocks.items()}, models={"m": {"attempts": 3}}
        )
        run = await stack.enter_async_context(running(config, tmp_path))
        await until(lambda: all(backend.answered for backend in run.gateway.state.backends.values()), "the first probes")
        client = await stack.enter_async_context(run.client())
        yield Pool(mocks, run, client)
        assert run.in_flight() == 0


FAULTS: dict[str, Behaviour] = {
    "500": Behaviour(status=500),
    "502": Behaviour(status=502, body="<html>bad</html>"),
    "503 with Retry-After": Behaviour(status=503, headers={"retry-after": "7"}),
    "429": Behaviour(status=429),
    "reset before the head": Behaviour(reset_after_events=-1),
    "not HTTP": Behaviour(raw=b"garbage\r\n\r\n"),
    "our key is refused": Behaviour(status=401),
    "not JSON": Behaviour(body="hello"),
    "an error under 200": Behaviour(body='{"error": {"message": "no"}}'),
    "it lacks the model": Behaviour(
        status=404, body='{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","param":"model","code":404}}'
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_another_replica_serves(pool: Pool, fault: str, stream: bool) -> None:
    pool.busy(b=1, c=2)
    pool.mocks["a"].script(FAULTS[fault])
    for _ in range(6):  # until the choice falls on the faulty one
        answer = await pool.client.post(CHAT, json=ASK | {"stream": stream})
        assert answer.status_code == 200, answer.text
        if pool.asked()["a"]:
            break
    pool.busy(b=-1, c=-2)
    assert pool.asked()["a"] == 1
    assert answer.headers["x-trilemma-attempts"] == "2"
    assert pool.run.settled[-1].outcome == "ok"


@pytest.mark.parametrize("cut", ["reset_after_events", "close_after_events"])
async def test_a_stream_that_breaks_before_its_first_event_begins_elsewhere(pool: Pool, cut: str) -> None:
    pool.all(Behaviour(**{cut: 0}, cut_wait_s=0.02))
    pool.mocks["c"].reset()
    answer = await pool.client.post(CHAT, json=ASK | {"stream": True})
    assert answer.status_code == 200
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert b"error" not in answer.content


async def test_a_stream_that_has_begun_is_never_tried_again(pool: Pool) -> None:
    pool.all(Behaviour(reset_after_events=2, cut_wait_s=0.05))
    answer = await pool.client.post(CHAT, json=ASK | {"stream": True})
    assert answer.status_code == 200
    assert answer.content.count(b'"error"') == 1
    assert b"[DONE]" not in answer.content
    assert sum(pool.asked().values()) == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_what_the_caller_got_wrong_is_neither_tried_again_nor_held_against_the_backend(pool: Pool, status: int) -> None:
    pool.all(*[Behaviour(status=status)] * 10)
    for _ in range(10):
        assert (await pool.client.post(CHAT, json=ASK)).status_code == status
    assert sum(pool.asked().values()) == 10
    assert {backend.breaker.state for backend in pool.run.gateway.state.backends.values()} == {"closed"}


async def test_attempts_are_bounded_and_the_last_failure_is_told(pool: Pool) -> None:
    pool.all(Behaviour(status=500, body='{"error":{"message":"mine"}}'))
    answer = await pool.client.post(CHAT, json=ASK)
    assert (answer.status_code, answer.json()) == (500, {"error": {"message": "mine"}})
    assert answer.headers["x-trilemma-attempts"] == "3"
    assert pool.asked() == {"a": 1, "b": 1, "c": 1}


async def test_of_three_one_dies_under_load(pool: Pool) -> None:
    async def ask() -> int:
        return (await pool.client.post(CHAT, json=ASK)).status_code

    tasks = [asyncio.create_task(ask()) for _ in range(60)]
    await pool.mocks["b"].aclose()
    tasks += [asyncio.create_task(ask()) for _ in range(60)]
    assert Counter(await asyncio.gather(*tasks)) == {200: 120}
    assert pool.run.gateway.state.backends["b"].breaker.state != "closed"


async def test_when_all_ask_for_patience_the_caller_learns_how_much(pool: Pool) -> None:
    pool.all(Behaviour(status=429, headers={"retry-after": "30"}, times=2))
    first = await pool.client.post(CHAT, json=ASK)
    assert (first.status_code, first.headers["retry-after"]) == (429, "30")
    second = await pool.client.post(CHAT, json=ASK)
    assert (second.status_code, second.json()["error"]["code"]) == (503, "backend_unavailable")
    assert 28 <= int(second.headers["retry-after"]) <= 30
    assert pool.asked() == {"a": 1, "b": 1, "c": 1}, "none was asked while it wanted to be left alone"


async def test_a_short_retry_after_is_waited_for(pool: Pool) -> None:
    pool.all(Behaviour(status=429, headers={"retry-after-ms": "50"}))
    config = pool.run.config
    config["models"]["m"]["attempts"] = 4
    assert await pool.run.app.reloader.reload()
    answer = await pool.client.post(CHAT, json=ASK)
    assert answer.status_code == 200
    assert answer.headers["x-trilemma-attempts"] == "4"


async def test_a_session_stays_where_it_is(pool: Pool) -> None:
    for _ in range(12):
        await pool.client.post(CHAT, json=ASK | {"trilemma": {"session_id": "s1"}})
    assert sorted(pool.asked().values()) == [0, 0, 12]


async def test_prompts_that_begin_alike_stay_together(pool: Pool) -> None:
    prompts = [f"conversation {n}: " + f"{n} words of it " * 200 for n in range(6)]
    for _ in range(4):
        for prompt in prompts:
            await pool.client.post(CHAT, json={"model": "m", "messages": [{"role": "user", "content": prompt}]})
    homes = [{name for name, mock in pool.mocks.items() for r in mock.requests_to(CHAT) if prompt.encode() in r.body} for prompt in prompts]
    assert [len(home) for home in homes] == [1] * 6


async def test_a_disabled_backend_gets_nothing(pool: Pool) -> None:
    pool.run.config["backends"]["a"]["enabled"] = False
    assert await pool.run.app.reloader.reload()
    for _ in range(12):
        await pool.client.post(CHAT, json=ASK)
    assert pool.asked()["a"] == 0
    for name in "bc":
        pool.run.config["backends"][name]["enabled"] = False
    assert await pool.run.app.reloader.reload()
    answer = await pool.client.post(CHAT, json=ASK)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "backend_unavailable")
    assert "retry-after" in answer.headers


async def test_a_long_stream_as_the_trial_does_not_keep_others_waiting(pool: Pool) -> None:
    """Its first event decides: the backend is back in use while the stream still runs."""
    for name in "bc":
        pool.run.config["backends"][name]["enabled"] = False
    assert await pool.run.app.reloader.reload()
    one = pool.mocks["a"]
    breaker = pool.run.gateway.state.backends["a"].breaker
    breaker.faulted(breaker.begin(), "connect")
    one.script(Behaviour(stall_after_events=2))
    async with pool.client.stream("POST", CHAT, json=ASK | {"stream": True}) as trial:
        assert trial.status_code == 200
        assert breaker.state == "closed"
        assert (await pool.client.post(CHAT, json=ASK)).status_code == 200


async def test_the_receipt_tells_of_the_last_attempt(pool: Pool) -> None:
    """One replica fails, the next one finds the caller at fault: that is the caller's error."""
    pool.mocks["a"].script(Behaviour(status=500, times=0))
    for name in "bc":
        pool.mocks[name].script(Behaviour(status=400, times=0))
    while pool.asked()["a"] == 0:
        assert (await pool.client.post(CHAT, json=ASK)).status_code == 400
    assert pool.run.settled[-1].attempts == 2
    assert pool.run.settled[-1].outcome == "caller_error"
