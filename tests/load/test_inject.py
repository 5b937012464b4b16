"""Faults done to a real mock process, and undone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.load import faults
from gateway.load.admin import Admin
from gateway.load.asking import call
from gateway.load.backends import BackendProcess
from gateway.load.faults import AnyFault
from gateway.load.inject import Happened, inject
from gateway.load.scenario import Group, ScenarioError
from gateway.mock import Behaviour, MockBackend
from gateway.pool.http1 import Http1Transport
from gateway.pool.transport import TransportError
from tests.support.waiting import until

BODY = b'{"model":"mock","messages":[{"role":"user","content":"x"}],"max_tokens":2}'


class Stand:
    """A mock process, a clock that starts now, and a way to ask."""

    def __init__(self, backend: BackendProcess, transport: Http1Transport) -> None:
        self.backend = backend
        self._transport = transport
        self._zero = time.perf_counter()

    def clock(self) -> float:
        return time.perf_counter() - self._zero

    async def ask(self) -> int:
        """The status of a completion; 0: none within half a second."""
        try:
            return (await call(self._transport, "POST", f"{self.backend.url}/v1/chat/completions", BODY, within_s=0.5))[0]
        except (TransportError, TimeoutError):
            return 0

    async def total(self) -> int:
        gauges = await self.backend.read()
        assert gauges is not None
        return gauges.total

    async def during(self, fault: AnyFault, enough: Callable[[list[int]], bool]) -> tuple[list[int], Happened]:
        """What was answered from before the fault began until the condition holds, and what happened."""
        happened = Happened(do="", backend="")
        answers: list[int] = []
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            task = group.create_task(inject(fault, self.backend, self.clock, happened))
            while not (enough(answers) and task.done()):
                answers.append(await self.ask())
                await asyncio.sleep(0.01)
        return answers, happened


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    transport = Http1Transport()
    backend = BackendProcess("mock", Group(first_token_s=0, tokens_per_second=0), None, tmp_path, None, transport)
    await backend.start()
    yield Stand(backend, transport)
    await transport.close()
    await backend.process.end()


async def test_errors_begin_and_end(stand: Stand) -> None:
    answers, happened = await stand.during(
        faults.Errors(at=0.1, for_s=0.2, backend="mock", status=502), lambda seen: seen[-3:] == [200] * 3
    )

    assert set(answers) == {200, 502}
    assert answers[0] == 200
    assert happened.began is not None
    assert happened.ended is not None
    assert happened.requests is not None
    assert 0 < answers.count(502) <= happened.requests
    assert await stand.ask() == 200


async def test_a_flapping_backend_is_well_in_between(stand: Stand) -> None:
    answers, _ = await stand.during(faults.Flap(at=0.1, for_s=1.0, backend="mock", period_s=0.4), lambda seen: seen[-3:] == [200] * 3)

    turns = [one for one, before in zip(answers, [0, *answers], strict=False) if one != before]
    assert turns[0] == turns[-1] == 200
    assert set(turns) == {200, 500}
    assert turns.count(500) > 1


async def test_a_killed_backend_answers_nothing_and_comes_back_where_it_was(stand: Stand) -> None:
    assert [await stand.ask() for _ in range(3)] == [200] * 3
    before = await stand.total()

    _, killed = await stand.during(faults.Kill(at=0, backend="mock"), lambda seen: seen[-1:] == [0])
    assert killed.began is not None
    assert await stand.backend.read() is None
    assert stand.backend.process.pid is None

    await stand.during(faults.Restart(at=0, backend="mock"), lambda seen: seen[-1:] == [200])
    assert await stand.total() > before  # what it counted before is not forgotten


async def test_a_frozen_backend_accepts_and_says_nothing(stand: Stand) -> None:
    answers, happened = await stand.during(faults.Freeze(at=0.1, for_s=0.8, backend="mock"), lambda seen: seen[-1:] == [200])

    assert 0 in answers
    assert answers[0] == 200
    assert happened.began is not None
    assert happened.ended is not None


async def test_counts_go_on_over_what_the_mock_is_told(stand: Stand) -> None:
    before = await stand.total()
    script = faults.Errors(at=0, for_s=1, backend="mock").script()

    await stand.ask()
    await stand.backend.misbehave(script)
    await stand.ask()
    await stand.backend.behave(script)
    await stand.ask()

    assert await stand.total() - before == 3


async def test_no_request_is_lost_while_the_mock_is_told(stand: Stand) -> None:
    before = await stand.total()
    script = faults.Errors(at=0, for_s=1, backend="mock").script()
    asked = 0
    done = False

    async def keep_asking() -> None:
        nonlocal asked
        while not done:
            await stand.ask()
            asked += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(keep_asking())
        for _ in range(20):
            await stand.backend.misbehave(script)
            await stand.backend.behave(script)
        done = True

    assert asked > 20
    assert await stand.total() - before == asked


async def test_the_last_of_two_faults_holds_and_the_first_one_is_not_forgotten(stand: Stand) -> None:
    first, second = (faults.Errors(at=0, for_s=1, backend="mock", status=status).script() for status in (500, 502))

    await stand.backend.misbehave(first)
    await stand.backend.misbehave(second)
    assert await stand.ask() == 502
    await stand.backend.behave(second)
    assert await stand.ask() == 500
    await stand.backend.behave(first)
    assert await stand.ask() == 200


async def test_a_drain_is_over_when_the_gateway_says_so(stand: Stand) -> None:
    """A mock plays the gateway's admin endpoint."""
    answers = [Behaviour(path="/admin/backends/mock", body=f'{{"drained":{drained}}}') for drained in ("true", "false", "false")]
    ended, late, back = (Happened(do="", backend="mock") for _ in range(3))
    async with MockBackend(script=answers) as gateway:
        transport = Http1Transport()
        admin = Admin(gateway.url, "sk", transport)

        await inject(faults.Drain(at=0, backend="mock", within_s=9), stand.backend, stand.clock, ended, admin)
        await inject(faults.Drain(at=0, backend="mock"), stand.backend, stand.clock, late, admin)
        await inject(faults.Undrain(at=0, backend="mock"), stand.backend, stand.clock, back, admin)
        await transport.close()

        asked = [(one.target, json.loads(one.body)["state"]) for one in gateway.requests]
    path = "/admin/backends/mock"
    assert asked == [(f"{path}?wait_s=9", "draining"), (f"{path}?wait_s=30", "draining"), (path, "serving")]
    assert [one.began is not None for one in (ended, late, back)] == [True] * 3
    assert [one.ended is not None for one in (ended, late, back)] == [True, False, False]


async def test_nobody_can_be_told_to_drain_where_there_is_no_key(stand: Stand) -> None:
    with pytest.raises(ScenarioError, match="nobody can be told"):
        await inject(faults.Drain(at=0, backend="mock"), stand.backend, stand.clock, Happened(do="drain", backend="mock"))


async def test_a_fault_that_is_cut_short_is_undone(stand: Stand) -> None:
    happened = Happened(do="", backend="")
    task = asyncio.create_task(inject(faults.Freeze(at=0, for_s=60, backend="mock"), stand.backend, stand.clock, happened))
    await until(lambda: happened.began is not None)
    assert await stand.ask() == 0

    task.cancel()
    await asyncio.wait([task])

    assert await stand.ask() == 200
