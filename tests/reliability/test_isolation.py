"""What one backend, or one caller, does to the gateway is not felt by the others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gateway.mock import Behaviour, MockBackend
from tests.reliability.engines import END, EVENT, STREAM, chunked, engine, held
from tests.support.asking import CHAT
from tests.support.raw import Wire, wire
from tests.support.running import Running, config_for, running
from tests.support.waiting import until


def ask(model: str, **extra: Any) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], **extra}).encode()


async def wires(stack: AsyncExitStack, run: Running, count: int) -> list[Wire]:
    return [await stack.enter_async_context(wire(run.url)) for _ in range(count)]


async def test_a_backend_that_never_answers_takes_nothing_from_the_others(tmp_path: Path) -> None:
    """500 calls hang at one backend while another one's are answered; then they end with a time-out, and nothing of them is left."""
    async with MockBackend(["hole"], default=Behaviour(never_answer=True)) as hole, MockBackend(["well"]) as well:
        config = config_for(
            {
                "hole": {"url": hole.url, "models": {"hole": "hole"}, "timeouts": {"first_byte_s": 2}},
                "well": {"url": well.url, "models": {"well": "well"}},
            }
        )
        async with running(config, tmp_path) as run, AsyncExitStack() as stack, run.client() as client:
            hanging = await wires(stack, run, 500)
            for each in hanging:
                each.post(ask("hole"))
            await hole.wait_for(lambda m: len(m.requests_to(CHAT)) == 500)
            for _ in range(10):
                answer = await client.post(CHAT, content=ask("well"))
                assert (answer.status_code, answer.headers["x-trilemma-attempts"]) == (200, "1")
            ended = await asyncio.gather(*(each.answer() for each in hanging))
            assert {(answer.status, answer.error["code"]) for answer in ended} == {(504, "backend_timeout")}
            await hole.wait_for(lambda m: m.in_flight == 0)
            assert run.in_flight() == 0


async def test_a_backend_that_never_answers_does_not_gather_calls_without_bound(tmp_path: Path) -> None:
    """With a queue, so many calls hang, so many wait, and all others are told at once when to come back."""
    async with MockBackend(["hole"], default=Behaviour(never_answer=True)) as hole, MockBackend(["well"]) as well:
        config = config_for(
            {name: {"url": mock.url, "models": {name: name}} for name, mock in (("hole", hole), ("well", well))},
            models={"hole": {"queue": {"slots": 20, "room": 30, "wait_s": 60}}},
        )
        async with running(config, tmp_path) as run, AsyncExitStack() as stack, run.client() as client:
            asking = await wires(stack, run, 150)
            for each in asking:
                each.post(ask("hole"))
            await run.until_settled(100)
            assert {receipt.status for receipt in run.settled} == {503}
            await hole.wait_for(lambda m: len(m.requests_to(CHAT)) == 20)
            late = await client.post(CHAT, content=ask("hole"))
            assert (late.status_code, late.json()["error"]["code"]) == (503, "gateway_overloaded")
            assert int(late.headers["retry-after"]) >= 1
            assert (await client.post(CHAT, content=ask("well"))).status_code == 200
            assert len(hole.requests_to(CHAT)) == 20


async def test_whether_it_is_alive_does_not_depend_on_backends(tmp_path: Path) -> None:
    """Two replicas take questions about their models and their load and never answer them: `/health` does, and calls are served."""
    silent = [Behaviour(path=path, never_answer=True, times=0) for path in ("/v1/models", "/metrics")]
    async with MockBackend(["m"], script=silent) as one, MockBackend(["m"], script=silent) as two:
        config = config_for({name: {"url": mock.url, "engine": "vllm", "models": {"m": "m"}} for name, mock in (("a", one), ("b", two))})
        async with running(config, tmp_path) as run, run.client() as client:
            for mock in (one, two):
                await mock.wait_for(lambda m: {each.path for each in m.requests if each.in_flight} == {"/v1/models", "/metrics"})
            assert {(await client.get("/health")).status_code for _ in range(50)} == {200}
            waiting = await client.get("/ready")
            assert (waiting.status_code, waiting.json()["reasons"]) == (503, ["no backend of `m` has answered"])
            assert (await client.post(CHAT, content=ask("m"))).status_code == 200
            assert (await client.get("/ready")).status_code == 200
            assert one.in_flight == two.in_flight == 2, "both still say nothing"


async def test_more_streams_than_there_are_slots(tmp_path: Path) -> None:
    """300 streams at once over 100 slots: 150 are served to their end, 150 refused with the time to come back, and probes are answered."""
    release = asyncio.Event()
    async with engine(held(STREAM + chunked(EVENT), chunked(END, end=True), release)) as served:
        config = config_for(
            {"e": {"url": served.url, "models": {"m": "m"}}}, models={"m": {"queue": {"slots": 100, "room": 50, "wait_s": 60}}}
        )
        async with running(config, tmp_path) as run, AsyncExitStack() as stack, run.client() as client:
            for each in (asking := await wires(stack, run, 300)):
                each.post(ask("m", stream=True))
            await run.until_settled(150)
            await until(lambda: len(served.calls) == 100, "every slot is taken")
            assert [(await client.get(path)).status_code for path in ("/health", "/ready", "/health")] == [200, 200, 200]
            release.set()
            ended = await asyncio.gather(*(each.answer() for each in asking))
            assert Counter(answer.status for answer in ended) == {200: 150, 503: 150}
            assert all(answer.body == EVENT + END for answer in ended if answer.status == 200)
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in ended if answer.status == 503)
            assert len(served.calls) == 150
