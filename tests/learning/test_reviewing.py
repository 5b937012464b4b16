"""Whoever judges answers: so many at once, never more than fit, and a pause when nothing comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.learning.findings import Case, Findings
from gateway.learning.reviewing import Reviewing, Unjudged
from tests.support.waiting import until


def case(id_: str = "d", share: float = 0.25) -> Case:
    return Case(id_, b"[]", "an answer", "m", {"judge": share}, 0.0, 1)


@dataclass
class Bench:
    """A judge that waits until it is let go, and says what it is told to."""

    rows: list[Any] = field(default_factory=list)
    says: list[float | Exception] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    most: int = 0
    now: float = 0.0
    at_once: int = 2
    reviewing: Reviewing = field(init=False)

    def __post_init__(self) -> None:
        findings = Findings(lambda _table, row: self.rows.append(row), lambda: 9.0)
        self.reviewing = Reviewing("judge", self._review, findings, lambda: self.at_once, lambda: self.now)

    async def _review(self, _case: Case) -> float:
        self.most = max(self.most, self.reviewing.running)
        await self.go.wait()
        found = self.says.pop(0) if self.says else 1.0
        if isinstance(found, Exception):
            raise found
        return found


@asynccontextmanager
async def working(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.reviewing.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_an_outcome_says_of_how_many_it_is() -> None:
    bench = Bench(says=[0.5])
    bench.go.set()
    async with working(bench):
        bench.reviewing.offer(case(share=0.25))
        await until(lambda: bench.rows)
    assert bench.rows == [("d", "quality", "judge", 0.5, 0.25, 9.0)]


async def test_so_many_at_once() -> None:
    bench = Bench()
    async with working(bench):
        for n in range(10):
            bench.reviewing.offer(case(str(n)))
        await until(lambda: bench.reviewing.running == 2)
        bench.at_once = 3
        bench.go.set()
        await until(lambda: len(bench.rows) == 10)
    assert 2 <= bench.most <= 3


async def test_what_does_not_fit_is_dropped() -> None:
    bench = Bench()
    for n in range(300):
        bench.reviewing.offer(case(str(n)))
    assert bench.reviewing.failures == {"dropped": 44}


async def test_five_failures_in_a_row_are_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    """What says nothing of it does not count; the pause grows, and ends with the first success."""
    bench = Bench(at_once=1)
    bench.go.set()
    async with working(bench):
        bench.says = [Unjudged("timeout")] * 4 + [Unjudged("silent", weighs=False), Unjudged("timeout")]
        for n in range(6):
            bench.reviewing.offer(case(str(n)))
        await until(lambda: bench.reviewing.failures.total() == 6)
        assert bench.reviewing.failures == {"timeout": 5, "silent": 1}
        bench.reviewing.offer(case("6"))
        assert bench.reviewing.failures["paused"] == 1
        bench.now = 31.0
        bench.says = [Unjudged("status")]
        bench.reviewing.offer(case("7"))
        await until(lambda: bench.reviewing.failures["status"] == 1)
        bench.now = 90.0
        bench.reviewing.offer(case("8"))
        assert bench.reviewing.failures["paused"] == 2, "the second pause is of a minute"
        bench.now = 92.0
        bench.reviewing.offer(case("9"))
        await until(lambda: len(bench.rows) == 1)
        bench.says = [Unjudged("timeout")] * 4
        for n in range(5):
            bench.reviewing.offer(case(str(n)))
        await until(lambda: len(bench.rows) == 2)
    assert [line for line in caplog.messages if "in a row" in line] == [
        "judge: 5 failures in a row (timeout); a pause of 30 s",
        "judge: 6 failures in a row (status); a pause of 60 s",
    ]
    assert "judge: works again" in caplog.messages


async def test_a_fault_of_our_own_leaves_its_words_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(says=[ValueError("words of an answer")])
    bench.go.set()
    async with working(bench):
        bench.reviewing.offer(case())
        await until(lambda: bench.reviewing.failures["fault"] == 1)
        bench.reviewing.offer(case())
        await until(lambda: bench.rows)
    assert "ValueError" in caplog.text and "words of an answer" not in caplog.text


async def test_the_end_ends_what_runs() -> None:
    bench = Bench()
    async with working(bench):
        bench.reviewing.offer(case())
        await until(lambda: bench.reviewing.running == 1)
    assert bench.reviewing.running == 0
    assert bench.rows == []
