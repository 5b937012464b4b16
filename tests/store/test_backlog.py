from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from gateway.store.backlog import Backlog, Work
from gateway.store.writer import StoreError
from tests.support import clock
from tests.support.waiting import until


class Base:
    """A database. away: whether it fails. done: what was written, in order."""

    def __init__(self) -> None:
        self.away = False
        self.tries = 0
        self.done: list[Any] = []

    async def run(self, work: Work) -> Any:
        self.tries += 1
        await asyncio.sleep(0)
        if self.away:
            raise StoreError("it is away")
        return work(self)  # type: ignore[arg-type]


def noting(what: int) -> Work:
    def work(session: Any) -> int:
        session.done.append(what)
        return what * 10

    return work


async def test_everything_is_written_in_order_and_whoever_waits_is_told() -> None:
    base, told = Base(), list[int]()
    backlog = Backlog(base.run)
    for n in range(3):
        backlog.put(noting(n), told.append)

    assert base.tries == 0, "putting never waits"
    assert await backlog.flush()
    assert (base.done, told) == ([0, 1, 2], [0, 10, 20])


async def test_two_who_flush_write_once() -> None:
    base = Base()
    backlog = Backlog(base.run)
    for n in range(3):
        backlog.put(noting(n))

    assert list(await asyncio.gather(backlog.flush(), backlog.flush())) == [True, True]

    assert base.done == [0, 1, 2]


async def test_what_could_not_be_written_waits() -> None:
    base = Base()
    backlog = Backlog(base.run)
    base.away = True
    backlog.put(noting(1))
    assert not await backlog.flush()
    backlog.put(noting(2))
    base.away = False

    assert await backlog.flush()
    assert base.done == [1, 2]


def test_it_is_tried_again_with_pauses_that_grow() -> None:
    async def run() -> list[float]:
        base, loop = Base(), asyncio.get_running_loop()
        base.away = True
        backlog = Backlog(base.run)
        task = asyncio.create_task(backlog.run())
        backlog.put(noting(1))
        times = []
        for n in range(1, 9):
            await until(lambda n=n: base.tries >= n, f"try {n}", within_s=100)  # type: ignore[misc]
            times.append(loop.time())
        base.away = False
        await until(lambda: base.done == [1], "it is written", within_s=100)
        task.cancel()
        return times

    times = clock.run(run())
    pauses = [round(later - sooner, 2) for sooner, later in pairwise(times)]
    assert pauses[0] == pytest.approx(0.25, abs=0.1)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(10, abs=0.1)


async def test_the_task_writes_what_comes() -> None:
    base = Base()
    backlog = Backlog(base.run)
    task = asyncio.create_task(backlog.run())
    for n in range(3):
        backlog.put(noting(n))
        await until(lambda n=n: base.done == list(range(n + 1)), "it is written")  # type: ignore[misc]
    task.cancel()


async def test_one_that_fails_for_good_does_not_keep_the_others(caplog: pytest.LogCaptureFixture) -> None:
    base = Base()
    backlog = Backlog(base.run)
    backlog.put(noting(1))
    backlog.put(lambda _: 1 / 0)
    backlog.put(noting(2))

    assert await backlog.flush()

    assert base.done == [1, 2]
    assert "ZeroDivisionError" in caplog.text


async def test_there_is_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    base = Base()
    backlog = Backlog(base.run, limit=2)
    for n in range(3):
        backlog.put(noting(n))

    assert await backlog.flush()

    assert base.done == [0, 1]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("away", [False, True])
async def test_the_end(caplog: pytest.LogCaptureFixture, *, away: bool) -> None:
    """What waits gets a last try, and what is lost is told."""
    base = Base()
    backlog = Backlog(base.run)
    base.away = away
    backlog.put(noting(1))

    await backlog.close()

    assert base.done == ([] if away else [1])
    lost = "1 entries of the administration's record could not be stored and are lost: it is away"
    assert (lost in caplog.text) == away


async def test_an_outage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    base = Base()
    backlog = Backlog(base.run)
    base.away = True
    backlog.put(noting(1))
    for _ in range(3):
        await backlog.flush()
    base.away = False
    await backlog.flush()

    assert [record.message for record in caplog.records] == [
        "the administration's record waits for the database: it is away",
        "the administration's record is stored again",
    ]
