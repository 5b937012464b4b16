"""A second replica is asked when the first is slow: one answer goes to the caller, the other call ends at once, and both are on record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.pool.hedging import size_of
from gateway.serving.call import Receipt
from gateway.serving.state import RealModel
from gateway.wire.request import read
from tests.support.asking import CHAT, data, error_of
from tests.support.running import Running, config_for, running
from tests.support.waiting import until

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
NEVER = Behaviour(never_answer=True)
ALWAYS = {"hedge": {"share": 1.0, "quantile": 0.5, "least_s": 0.02}}


@dataclass
class Pool:
    """Mocks that serve `m`, and a gateway over them that prefers `a`."""

    mocks: dict[str, MockBackend]
    run: Running
    client: httpx.AsyncClient

    async def ask(self, **more: Any) -> httpx.Response:
        return await self.client.post(CHAT, json=ASK | more)

    async def learn(self, **more: Any) -> None:
        """So many fast answers that what is slow is known; then all records are empty."""
        for _ in range(8):
            answers = await asyncio.gather(*(self.ask(**more) for _ in range(8)))
            assert {answer.headers["x-trilemma-attempts"] for answer in answers} == {"1"}, "nothing is known yet"
        await self.run.until_settled(64)
        self.run.settled.clear()
        for mock in self.mocks.values():
            mock.reset()

    def know(self, **more: Any) -> None:
        """As if it had learnt from 64 answers that came at once."""
        route = self.run.gateway.state.names["m"]
        assert isinstance(route, RealModel)
        if route.hedging is None:
            return
        fields = read(httpx.Request("POST", "http://x", json=ASK | more).content, 128)
        size = size_of(len(fields.messages), fields.max_tokens, streams=bool(fields.stream))
        for _ in range(64):
            route.hedging.begin(size)
            route.hedging.waited(size, 0.0)

    def asked(self) -> dict[str, int]:
        return {name: len(mock.requests_to(CHAT)) for name, mock in self.mocks.items()}

    async def both_asked(self) -> None:
        for name in "ab":
            await self.mocks[name].wait_for(lambda mock: len(mock.requests_to(CHAT)) == 1)

    async def receipt(self) -> Receipt:
        await self.run.until_settled(1)
        return self.run.settled[-1]


@asynccontextmanager
async def pool(folder: Path, names: str = "ab", model: dict[str, Any] | None = None, **sections: Any) -> AsyncIterator[Pool]:
    async with AsyncExitStack() as stack:
        mocks = {name: await stack.enter_async_context(MockBackend(["m"])) for name in names}
        backends = {name: {"url": mock.url, "engine": "vllm", "models": {"m": "m"}} for name, mock in mocks.items()}
        models = {"m": ALWAYS if model is None else model, **sections.pop("models", {})}
        run = await stack.enter_async_context(
            running(config_for(backends | sections.pop("backends", {}), models=models, **sections), folder)
        )
        live = run.gateway.state.backends
        await until(lambda: all(live[name].answered for name in names), "the first probes")
        busy = {name: 100 * number for number, name in enumerate(names)}
        for name, count in busy.items():  # so that the choice is known
            live[name].in_flight += count
        yield Pool(mocks, run, await stack.enter_async_context(run.client()))
        for name, count in busy.items():
            await until(lambda name=name, count=count: live[name].in_flight == count, "the end of all calls")  # type: ignore[misc]
            live[name].in_flight -= count


def told(receipt: Receipt) -> dict[str, tuple[str | None, str | None]]:
    """Of the call to each backend: outcome and fault."""
    assert all(call.ended is not None for call in receipt.calls)
    return {call.backend: (call.outcome, call.fault) for call in receipt.calls}


@BOTH_WAYS
async def test_when_the_first_is_slow_the_second_answers(tmp_path: Path, stream: bool) -> None:
    async with pool(tmp_path) as it:
        await it.learn(stream=stream)
        it.mocks["a"].script(Behaviour(stall_after_events=0) if stream else NEVER)
        answer = await it.ask(stream=stream)
        assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (200, "2")
        if stream:
            assert data(answer.content)[-1] == b"[DONE]"
        await it.mocks["a"].wait_for(lambda mock: mock.aborted == 1)
        receipt = await it.receipt()
        assert (receipt.outcome, receipt.backend, receipt.attempts) == ("ok", "b", 2)
        assert told(receipt) == {"a": ("cancelled", None), "b": ("ok", None)}
        assert receipt.usage is not None
        assert receipt.usage.completion == 2, "what the other one may have sampled is not known, and not the caller's"
        assert it.run.gateway.state.backends["a"].breaker.state == "closed", "to be slow is no fault"


@BOTH_WAYS
async def test_when_the_first_answers_after_all_it_is_taken(tmp_path: Path, stream: bool) -> None:
    async with pool(tmp_path) as it:
        it.know(stream=stream)
        it.mocks["a"].script(Behaviour(delay_headers_s=0.5))
        it.mocks["b"].script(NEVER)
        answer = await it.ask(stream=stream)
        assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (200, "2")
        await it.mocks["b"].wait_for(lambda mock: mock.aborted == 1)
        receipt = await it.receipt()
        assert (receipt.backend, told(receipt)) == ("a", {"a": ("ok", None), "b": ("cancelled", None)})


async def test_a_fast_answer_is_not_hedged(tmp_path: Path) -> None:
    async with pool(tmp_path, model={"hedge": {"share": 1.0, "least_s": 20}}) as it:
        it.know()
        it.mocks["a"].script(Behaviour(delay_headers_s=0.1))
        assert (await it.ask()).headers["x-trilemma-attempts"] == "1"
        assert it.asked() == {"a": 1, "b": 0}


async def test_off_by_default(tmp_path: Path) -> None:
    async with pool(tmp_path, model={}) as it:
        it.know()
        it.mocks["a"].script(Behaviour(delay_headers_s=0.4))
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-attempts"], it.asked()) == (200, "1", {"a": 1, "b": 0})


async def test_both_fail_and_a_third_serves(tmp_path: Path) -> None:
    async with pool(tmp_path, "abc") as it:
        it.know()
        it.mocks["a"].script(Behaviour(delay_headers_s=0.4, status=500))
        it.mocks["b"].script(Behaviour(status=503))
        answer = await it.ask()
        assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (200, "3")
        assert told(await it.receipt()) == {"a": ("backend_error", "status"), "b": ("backend_error", "status"), "c": ("ok", None)}


async def test_both_fail_and_no_other_is_left(tmp_path: Path) -> None:
    async with pool(tmp_path) as it:
        it.know()
        it.mocks["a"].script(Behaviour(delay_headers_s=0.4, status=500, body='{"error":{"message":"a"}}'))
        it.mocks["b"].script(Behaviour(status=503))
        answer = await it.ask()
        assert (answer.status_code, answer.json(), answer.headers["x-trilemma-attempts"]) == (500, {"error": {"message": "a"}}, "2")


@BOTH_WAYS
async def test_a_failure_waits_for_the_hedge(tmp_path: Path, stream: bool) -> None:
    async with pool(tmp_path) as it:
        it.know(stream=stream)
        it.mocks["a"].script(Behaviour(delay_headers_s=0.3, raw=b"garbage\r\n\r\n"))
        it.mocks["b"].script(Behaviour(delay_headers_s=0.6))
        answer = await it.ask(stream=stream)
        assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (200, "2")
        receipt = await it.receipt()
        assert (receipt.backend, receipt.outcome) == ("b", "ok")
        assert told(receipt) == {"a": ("backend_error", "reset"), "b": ("ok", None)}


async def test_a_hedge_that_fails_costs_nothing(tmp_path: Path) -> None:
    async with pool(tmp_path) as it:
        it.know()
        it.mocks["a"].script(Behaviour(delay_headers_s=0.4))
        it.mocks["b"].script(Behaviour(status=500))
        answer = await it.ask()
        assert (answer.status_code, (await it.receipt()).backend) == (200, "a")


async def test_a_client_that_leaves_ends_both(tmp_path: Path) -> None:
    async with pool(tmp_path, model=ALWAYS | {"queue": {"slots": 1}}) as it:
        it.know()
        for mock in it.mocks.values():
            mock.script(NEVER)
        task = asyncio.create_task(it.ask())
        await it.both_asked()
        task.cancel()
        for mock in it.mocks.values():
            await mock.wait_for(lambda one: one.aborted == 1)
        receipt = await it.receipt()
        assert receipt.outcome == "client_closed"
        assert told(receipt) == {"a": ("cancelled", None), "b": ("cancelled", None)}
        assert (await it.ask()).status_code == 200, "and its place in the queue is free"


async def test_the_deadline_ends_both(tmp_path: Path) -> None:
    async with pool(tmp_path) as it:
        it.know()
        for mock in it.mocks.values():
            mock.script(NEVER)
        answer = await it.ask(trilemma={"deadline_ms": 700})
        assert (answer.status_code, error_of(answer)["code"]) == (504, "gateway_deadline")
        for mock in it.mocks.values():
            await mock.wait_for(lambda one: one.aborted == 1)
        receipt = await it.receipt()
        assert (receipt.outcome, told(receipt)) == ("gateway_error", {"a": ("cancelled", None), "b": ("cancelled", None)})
        assert {each.breaker.state for each in it.run.gateway.state.backends.values()} == {"closed"}


async def test_a_stream_that_was_hedged_is_bounded_like_any_other(tmp_path: Path) -> None:
    """It began in a task of its own, and is read by another one."""
    async with pool(tmp_path, model=ALWAYS | {"timeouts": {"idle_s": 0.2}}) as it:
        it.know(stream=True)
        it.mocks["a"].script(NEVER)
        it.mocks["b"].script(Behaviour(stall_after_events=2))
        answer = await it.ask(stream=True)
        assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (200, "2")
        assert b"backend_timeout" in data(answer.content)[-1]
        await it.mocks["b"].wait_for(lambda mock: mock.aborted == 1)
        assert told(await it.receipt()) == {"a": ("cancelled", None), "b": ("backend_error", "timeout")}


async def test_what_the_caller_got_wrong_ends_both(tmp_path: Path) -> None:
    async with pool(tmp_path) as it:
        it.know()
        it.mocks["a"].script(NEVER)
        it.mocks["b"].script(Behaviour(status=400))
        assert (await it.ask()).status_code == 400
        await it.mocks["a"].wait_for(lambda mock: mock.aborted == 1)
        assert (await it.receipt()).outcome == "caller_error"


async def test_no_more_calls_than_the_share_are_hedged(tmp_path: Path) -> None:
    """64 calls have earned 4 hedges at most; 40 slow ones earn 4 more."""
    async with pool(tmp_path, model={"hedge": {"share": 0.1, "quantile": 0.5, "least_s": 0.02}}) as it:
        it.know()
        it.mocks["a"].script(Behaviour(delay_headers_s=0.5, times=0))
        answers = await asyncio.gather(*(it.ask() for _ in range(40)))
        assert {answer.status_code for answer in answers} == {200}
        hedged = sum(answer.headers["x-trilemma-attempts"] == "2" for answer in answers)
        assert 1 <= hedged <= 8
        assert it.asked() == {"a": 40, "b": hedged}


async def test_one_that_is_cooling_down_is_not_asked_and_one_attempt_is_kept_for_who_stands_in(tmp_path: Path) -> None:
    async with MockBackend(["m"]) as other:
        backends = {"other": {"url": other.url, "models": {"spare": "m"}}}
        model = ALWAYS | {"fallbacks": ["spare"], "attempts": 2}
        async with pool(tmp_path, model=model, models={"spare": {}}, backends=backends) as it:
            it.know()
            it.mocks["a"].script(Behaviour(delay_headers_s=0.4), Behaviour(delay_headers_s=0.4, status=500))
            assert (await it.ask()).headers["x-trilemma-attempts"] == "1"
            answer = await it.ask()
            assert (answer.headers["x-trilemma-model"], answer.headers["x-trilemma-attempts"]) == ("spare", "2")
            assert it.asked()["b"] == 0
            it.run.config["models"]["m"] = ALWAYS
            assert await it.run.app.reloader.reload()
            it.mocks["a"].reset()
            breaker = it.run.gateway.state.backends["b"].breaker
            breaker.faulted(breaker.begin(), "rate_limit", 60.0)
            it.mocks["a"].script(Behaviour(delay_headers_s=0.4))
            assert ((await it.ask()).headers["x-trilemma-attempts"], it.asked()) == ("1", {"a": 1, "b": 0})


async def test_what_is_known_of_waits_survives_a_reload(tmp_path: Path) -> None:
    async with pool(tmp_path) as it:
        it.know()
        it.run.config["models"]["m"] = ALWAYS | {"aliases": ["other-name"]}
        assert await it.run.app.reloader.reload()
        it.mocks["a"].script(NEVER)
        assert (await it.ask()).headers["x-trilemma-attempts"] == "2"
