"""Following: what a source last found stays, whatever becomes of the source, and how old it is can be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable

import pytest

from gateway.pool.discovery.endpoint import Endpoint, endpoint
from gateway.pool.discovery.follower import Follower, Status
from gateway.pool.discovery.source import Failed, Found, News
from tests.pool.scripted import WITH_CLOCK, eventually, turns

pytestmark = WITH_CLOCK

A, B, C = (endpoint(f"http://{name}") for name in "abc")


class Told:
    """A source that says what a test puts into `news`; `end` ends it, an exception is raised. `closed` counts."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[News | Exception | None] = asyncio.Queue()
        self.closed = 0

    async def watch(self) -> AsyncGenerator[News, None]:
        try:
            while (each := await self.news.get()) is not None:
                if isinstance(each, Exception):
                    raise each
                yield each
        finally:
            self.closed += 1


class Case:
    """A follower of such a source. `at_change` runs within each taking up."""

    def __init__(self) -> None:
        self.now = 100.0
        self.source = Told()
        self.taken: list[tuple[Endpoint, ...]] = []
        self.pauses: list[float] = []
        self.at_change: Callable[[], None] = lambda: None
        self.follower = Follower("gpu", self.source, self.changed, sleep=self.sleep, clock=lambda: self.now)

    async def changed(self, name: str, endpoints: tuple[Endpoint, ...]) -> None:
        assert name == "gpu"
        await asyncio.sleep(0)
        self.at_change()
        self.taken.append(endpoints)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def say(self, *news: News | Exception | None) -> Status:
        """What the follower's status is after it has heard that."""
        for each in news:
            self.source.news.put_nowait(each)
        await eventually(self.source.news.empty)
        await turns(5)
        return self.follower.status()


@pytest.fixture
async def case() -> Case:
    return Case()


async def following(case: Case) -> asyncio.Task[None]:
    return asyncio.create_task(case.follower.run())


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_before_the_first_word_nothing_is_known(case: Case) -> None:
    task = await following(case)
    await turns(5)
    assert case.follower.status() == Status((), None, None)
    assert not case.follower.heard.is_set()
    await stop(task)
    assert case.source.closed == 1


async def test_changes_are_taken_up_whole_and_in_order(case: Case) -> None:
    task = await following(case)
    await case.say(Found((A,)), Found((A,)), Found((A, B)), Found(()), Found((C, A)))
    assert case.taken == [(A,), (A, B), (), (C, A)]
    await stop(task)


async def test_the_first_answer_is_taken_up_though_it_is_empty(case: Case) -> None:
    task = await following(case)
    assert await case.say(Found(())) == Status((), None, 0.0)
    assert case.taken == [()]
    await stop(task)


async def test_a_weight_or_a_label_is_a_change(case: Case) -> None:
    task = await following(case)
    heavy, named = endpoint("http://a", 2), endpoint("http://a", 2, [("pod", "p")])
    await case.say(Found((A,)), Found((heavy,)), Found((named,)))
    assert case.taken == [(A,), (heavy,), (named,)]
    await stop(task)


async def test_what_was_found_stays_while_the_source_fails(case: Case) -> None:
    task = await following(case)
    await case.say(Found((A, B)))
    case.now += 60
    assert await case.say(Failed("no name server")) == Status((A, B), "no name server", 60.0)
    case.now += 60
    assert await case.say(Failed("no such host")) == Status((A, B), "no such host", 120.0)
    assert await case.say(Found((A, B))) == Status((A, B), None, 0.0)
    assert case.taken == [(A, B)]
    await stop(task)


async def test_a_failure_is_a_first_word_too(case: Case) -> None:
    task = await following(case)
    assert await case.say(Failed("no such host")) == Status((), "no such host", None)
    assert case.follower.heard.is_set()
    assert case.taken == []
    await stop(task)


async def test_a_failure_is_logged_when_it_begins_changes_or_ends(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trilemma.discovery")
    task = await following(case)
    await case.say(Found((A, B)), Failed("x"), Failed("x"), Failed("y"), Found((B, C)), Found((B, C)))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "gpu: 2 replicas (+a, +b)"),
        ("WARNING", "gpu: x; replicas stay as they were (2)"),
        ("WARNING", "gpu: y; replicas stay as they were (2)"),
        ("INFO", "gpu: 2 replicas (+c, -a)"),
        ("INFO", "gpu: replicas can be looked up again"),
    ]
    await stop(task)


async def test_what_could_not_be_taken_up_is_tried_again(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise RuntimeError("no room")

    task = await following(case)
    await case.say(Found((A,)))
    case.at_change = fails
    assert await case.say(Found((A, B))) == Status((A,), "new replicas could not be taken up (the log tells why)", 0.0)
    assert "no room" in caplog.text
    case.at_change = lambda: None
    assert await case.say(Found((A, B))) == Status((A, B), None, 0.0)
    assert case.taken == [(A,), (A, B)]
    await stop(task)


async def test_a_fault_of_ours_starts_the_source_anew(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    task = await following(case)
    status = await case.say(Found((A,)), ZeroDivisionError("a bug"))
    assert status.endpoints == (A,)
    assert status.last_error == "a fault of the gateway's own (its log tells more)"
    assert "a bug" in caplog.text
    assert (case.source.closed, case.pauses) == (1, [5.0])
    assert await case.say(Found((A, B))) == Status((A, B), None, 0.0)
    await stop(task)


async def test_what_can_never_change_does_not_age(case: Case) -> None:
    task = await following(case)
    await case.say(Found((A,)), None)
    await task
    case.now += 86_400
    assert case.follower.status() == Status((A,), None, 0.0)


async def test_ending_does_not_wait_for_the_taking_up(case: Case) -> None:
    taking = asyncio.Event()

    async def never(_name: str, _endpoints: tuple[Endpoint, ...]) -> None:
        taking.set()
        await asyncio.get_running_loop().create_future()

    follower = Follower("gpu", case.source, never)
    task = asyncio.create_task(follower.run())
    case.source.news.put_nowait(Found((A,)))
    await taking.wait()
    await stop(task)
    assert case.source.closed == 1
    assert follower.status() == Status((), None, None)
