"""Questions and answers over a socket between two ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.workers.channel import Channel, Gone, Handler, Refused


@asynccontextmanager
async def pair(one: Mapping[str, Handler], other: Mapping[str, Handler]) -> AsyncIterator[tuple[Channel, Channel]]:
    """Both ends, served."""
    here, there = socket.socketpair()
    ends = await Channel.over(here, one), await Channel.over(there, other)
    tasks = [asyncio.create_task(end.run()) for end in ends]
    try:
        yield ends
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def doubled(body: Any) -> Any:
    return body * 2


async def fails(_body: Any) -> Any:
    raise ValueError("sk-secret")


async def test_both_ends_ask() -> None:
    async with pair({"double": doubled}, {"double": doubled}) as (one, other):
        assert await one.ask("double", 21) == 42
        assert await other.ask("double", "ab") == "abab"
        assert await one.ask("double", ["ü\n", None]) == ["ü\n", None, "ü\n", None]


async def test_a_large_answer() -> None:
    text = "x" * 3_000_000
    async with pair({}, {"double": doubled}) as (one, _):
        assert await one.ask("double", text) == text * 2


async def test_answers_find_their_questions_in_any_order() -> None:
    gates = {name: asyncio.Event() for name in "ab"}

    async def waits(name: Any) -> Any:
        await gates[name].wait()
        return name

    async with pair({}, {"wait": waits}) as (one, _):
        first, second = (asyncio.create_task(one.ask("wait", name)) for name in "ab")
        gates["b"].set()
        assert await second == "b"
        assert not first.done()
        gates["a"].set()
        assert await first == "a"


async def test_what_is_told_is_heard_in_order() -> None:
    heard: list[int] = []

    async def hear(number: Any) -> None:
        heard.append(number)

    async with pair({}, {"hear": hear, "double": doubled}) as (one, _):
        for number in range(50):
            one.tell("hear", number)
        await one.ask("double", 1)
        assert heard == list(range(50))


async def test_a_failure_is_told_without_its_words_and_logged_where_it_happened(caplog: pytest.LogCaptureFixture) -> None:
    async with pair({}, {"fail": fails, "double": doubled}) as (one, _):
        with caplog.at_level(logging.ERROR), pytest.raises(Refused) as refused:
            await one.ask("fail")
        assert "secret" not in str(refused.value)
        assert [record.exc_info is not None for record in caplog.records] == [True]
        with pytest.raises(Refused):
            await one.ask("nobody knows this")
        assert await one.ask("double", 1) == 2


async def test_an_answer_that_does_not_come_in_time() -> None:
    gate = asyncio.Event()

    async def late(_body: Any) -> str:
        await gate.wait()
        return "late"

    async with pair({}, {"late": late, "double": doubled}) as (one, _):
        with pytest.raises(TimeoutError):
            await one.ask("late", within_s=0.01)
        gate.set()
        assert await one.ask("double", 1) == 2  # the late answer is nobody's


async def test_when_the_other_end_leaves_nobody_waits_for_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hangs(_body: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    here, there = socket.socketpair()
    one, other = await Channel.over(here, {"hang": hangs}), await Channel.over(there, {"hang": hangs})
    mine, its = asyncio.create_task(one.run()), asyncio.create_task(other.run())
    asked = asyncio.create_task(one.ask("hang"))
    await begun.wait()
    its.cancel()
    with pytest.raises(Gone):
        await asked
    await mine
    assert ended.is_set(), "what it served for nobody is over"
    assert one.gone
    with pytest.raises(Gone):
        await one.ask("hang")
    one.tell("hang")
    await asyncio.wait({its})


@pytest.mark.parametrize("data", [struct.pack(">I", 3) + b"{} ", struct.pack(">I", 9) + b'["what",1'])
async def test_nonsense_ends_it(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    here, there = socket.socketpair()
    one = await Channel.over(here, {})
    with there, caplog.at_level(logging.ERROR):
        there.sendall(data)
        await asyncio.wait_for(one.run(), 10)
    assert one.gone
    assert len(caplog.records) == 1
