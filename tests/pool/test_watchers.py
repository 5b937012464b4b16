"""One task per backend: who is looked at, how often, and that no look ends the looking."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.pool.backend import Backend
from gateway.pool.watchers import Look, Watchers
from tests.pool.making import made
from tests.pool.scripted import WITH_CLOCK, clock, turns

pytestmark = [WITH_CLOCK, pytest.mark.usefixtures("watched")]


class Looks:
    """Notes who is looked at; `pause` is when the next look comes, or why there is none."""

    def __init__(self, pause: float | Exception = 10.0) -> None:
        self.pause = pause
        self.seen: list[str] = []

    def __call__(self, backend: Backend) -> Look:
        async def look() -> float:
            self.seen.append(backend.name)
            if isinstance(self.pause, Exception):
                raise self.pause
            return self.pause

        return look


def looking() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("look at ")}


async def test_there_is_one_generation() -> None:
    looks = Looks()
    a, b, c = made("a"), made("b"), made("c")
    async with asyncio.TaskGroup() as group:
        watchers = Watchers(group, "look at", looks)
        watchers.watch([a, b])
        await turns(5)
        assert looking() == {"look at a", "look at b"}
        watchers.watch([b, c])
        watchers.watch([b, c])
        await turns(5)
        assert looking() == {"look at b", "look at c"}
        assert sorted(looks.seen) == ["a", "b", "c"], "who stays goes on as it was"
        looks.seen.clear()
        await clock().pass_time(10.5)
        assert sorted(looks.seen) == ["b", "c"]
        watchers.watch(())
        await turns(5)
        assert not looking()


async def test_one_that_is_new_under_an_old_name_takes_its_place() -> None:
    looks = Looks()
    async with asyncio.TaskGroup() as group:
        watchers = Watchers(group, "look at", looks)
        watchers.watch([made("a")])
        await turns(5)
        watchers.watch([made("a")])
        await turns(5)
        assert len([task for task in asyncio.all_tasks() if task.get_name() == "look at a"]) == 1
        watchers.watch(())


async def test_the_disabled_are_left_alone_until_they_are_not() -> None:
    looks = Looks()
    a, b = made("a"), made("b")
    a.disabled = True
    async with asyncio.TaskGroup() as group:
        watchers = Watchers(group, "look at", looks)
        watchers.watch([a, b])
        await turns(5)
        assert looks.seen == ["b"]
        a.disabled, b.disabled = False, True
        watchers.watch([a, b])
        await turns(5)
        assert looks.seen == ["b", "a"]
        assert looking() == {"look at a"}
        watchers.watch(())


async def test_a_look_that_raises_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(ZeroDivisionError("a fault of our own"))
    async with asyncio.TaskGroup() as group:
        watchers = Watchers(group, "look at", looks)
        with caplog.at_level(logging.ERROR, "trilemma.pool"):
            watchers.watch([made("a")])
            await turns(5)
        assert "look at a failed" in caplog.text
        assert "a fault of our own" in caplog.text
        await clock().pass_time(5.1)
        assert looks.seen == ["a", "a"]
        watchers.watch(())


async def test_a_look_may_come_at_once_but_not_again_and_again() -> None:
    looks = Looks(1_000.0)
    a = made("a")
    async with asyncio.TaskGroup() as group:
        watchers = Watchers(group, "look at", looks)
        watchers.watch([a])
        await turns(5)
        watchers.at_once(a)
        await turns(5)
        assert looks.seen == ["a"], "it has only just been looked at"
        await clock().pass_time(0.2)
        assert looks.seen == ["a", "a"]
        await clock().pass_time(1.0)
        watchers.at_once(a)
        await turns(5)
        assert looks.seen == ["a", "a", "a"]
        watchers.at_once(made("b"))  # who is not looked at stays so
        watchers.watch(())
        watchers.at_once(a)
        await clock().pass_time(1.0)
        assert len(looks.seen) == 3
