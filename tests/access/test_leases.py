"""Limits that several processes share. Each here is a loop in a thread of its own, with a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway.access.keys import Principal
from gateway.access.leases import SharedLimits
from gateway.access.limit import Need, limits_of
from gateway.access.limits import Permit
from gateway.access.link import Link
from gateway.config.schema import Rules
from gateway.store.urls import SqliteUrl
from gateway.wire.errors import ApiError
from tests.support.stored import Place, SqlitePlace
from tests.support.waiting import until

T = TypeVar("T")
SMALL = Need(10, 10)


def caller(rules: Rules, key: str = "dev") -> Principal:
    return Principal(key, "acme", frozenset(("inference",)), None, limits=limits_of(key, rules, Rules(), "acme", {}))


async def taken(limits: SharedLimits, principal: Principal, need: Need = SMALL) -> Permit:
    """A permit that has what it needs. Raises ApiError."""
    permit = limits.permit(principal)
    assert permit is not None
    if not permit.take(need):
        await permit.drawn(need)
    return permit


async def refused(limits: SharedLimits, principal: Principal, need: Need = SMALL) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await taken(limits, principal, need)
    return caught.value


def told(permit: Permit) -> dict[str, str]:
    return {name.decode().removeprefix("x-ratelimit-"): value.decode() for name, value in permit.headers()}


@asynccontextmanager
async def sharing(place: Place, within_s: float = 10.0, **settings: Any) -> AsyncIterator[SharedLimits]:
    """A process's limits, in this loop."""
    link = Link(place.location, within_s)
    limits = SharedLimits(link, **settings)
    await limits.rounds.start(5)
    assert limits.rounds.up
    task = asyncio.create_task(limits.rounds.run())
    try:
        yield limits
    finally:
        task.cancel()
        await asyncio.wait([task])
        await limits.rounds.close()
        await link.close()


class Process:
    """A loop in a thread of its own, until the block ends."""

    limits: SharedLimits

    def __init__(self, place: Place) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _run(self) -> None:
        async with sharing(self._place) as self.limits:
            self._begun.set()
            await self._ends.wait()

    def __enter__(self) -> Process:
        self._thread.start()
        assert self._begun.wait(10)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(10)
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Callable[[], T]:
        """Begins it, and gives what waits for its end."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return lambda: future.result(20)


@pytest.fixture
def pair(place: Place) -> Iterator[Sequence[Process]]:
    with Process(place) as first, Process(place) as second:
        yield first, second


async def many(process: Process, principal: Principal, calls: int) -> list[Permit]:
    """So many at once; those that were let through."""
    found = await asyncio.gather(*(taken(process.limits, principal) for _ in range(calls)), return_exceptions=True)
    assert all(isinstance(each, (Permit, ApiError)) for each in found), found
    return [each for each in found if isinstance(each, Permit)]


def at_once(pair: Sequence[Process], principal: Principal, calls: int) -> list[list[Permit]]:
    """So many calls at once over both processes; those that each let through."""
    ends = [process.begin(many(process, principal, calls // 2)) for process in pair]
    return [end() for end in ends]


@pytest.mark.parametrize("rules", [Rules(rpm=1), Rules(tpm=30), Rules(concurrency=1), Rules(rpm=1, tpm=30, concurrency=1)])
def test_of_fifty_at_once_over_two_processes_one_is_let_through_if_that_is_the_limit(pair: Sequence[Process], rules: Rules) -> None:
    found = at_once(pair, caller(rules), 50)

    assert sum(map(len, found)) == 1


@pytest.mark.parametrize("rules", [Rules(rpm=20), Rules(tpm=419), Rules(concurrency=20), Rules(rpm=20, tpm=400, concurrency=20)])
def test_of_fifty_at_once_over_two_processes_exactly_twenty_are_let_through(pair: Sequence[Process], rules: Rules) -> None:
    """20 tokens each: the 21st would be beyond 419."""
    found = at_once(pair, caller(rules), 50)

    assert sum(map(len, found)) == 20


def test_of_a_larger_limit_no_more_than_a_small_part_is_left_with_a_process_that_has_no_use_for_it(pair: Sequence[Process]) -> None:
    found = at_once(pair, caller(Rules(rpm=640)), 1_000)

    assert 640 - 2 * 640 // 32 <= sum(map(len, found)) <= 640


def test_a_place_that_one_process_gives_back_is_the_others_at_once(pair: Sequence[Process]) -> None:
    """Also when the second asks before the database has heard of it."""
    principal = caller(Rules(concurrency=1))

    async def give_back(permit: Permit) -> None:
        permit.close(20)

    for n in range(20):
        one, other = pair[n % 2], pair[(n + 1) % 2]
        permit = one.begin(taken(one.limits, principal))()
        one.begin(give_back(permit))()
        other.begin(give_back(other.begin(taken(other.limits, principal))()))()


async def test_what_one_process_has_used_the_other_tells_and_refuses(place: Place) -> None:
    principal = caller(Rules(rpm=10, tpm=100))
    async with sharing(place) as one, sharing(place) as other:
        await taken(one, principal)
        permit = await taken(other, principal, Need(30, 0))
        assert told(permit) | {"reset-requests": "", "reset-tokens": ""} == {
            "limit-requests": "10",
            "remaining-requests": "8",
            "reset-requests": "",
            "limit-tokens": "100",
            "remaining-tokens": "50",
            "reset-tokens": "",
        }
        assert told(permit)["reset-requests"].startswith("1m")
        error = await refused(one, principal, Need(51, 0))
        assert "tokens per minute (TPM) of key `dev`: limit 100, used 50, requested 51" in error.message
        ((_, seconds), (_, ms)) = error.headers
        assert 60 <= int(seconds) <= 63
        assert 60_000 <= int(ms) <= 62_001


@pytest.mark.parametrize(("spent", "left"), [(5, 95), (20, 80), (100, 0), (None, 80)])
async def test_tokens_are_settled_for_all(place: Place, spent: int | None, left: int) -> None:
    principal = caller(Rules(tpm=100))
    async with sharing(place) as one, sharing(place) as other:
        permit = await taken(one, principal)
        permit.close(spent)

        def amounts() -> float:
            return sum(row["amount"] for row in place.rows("leases"))

        await until(lambda: amounts() == (20 if spent is None else spent), "the database has heard of it")
        await taken(other, principal, Need(left, 0))
        await refused(other, principal, Need(1, 0))


async def test_candidates_beside_the_first_are_drawn_for_and_given_back_to_all(place: Place) -> None:
    """Of 100: 20 for the first and 60 beside it; then the other process finds 20, and in the end all but the 35 that were used."""
    principal = caller(Rules(rpm=2, tpm=100, concurrency=2))
    async with sharing(place) as one, sharing(place) as other:
        permit = await taken(one, principal)
        beside = permit.beside()
        if not beside.take(SMALL.times(3)):
            await beside.drawn(SMALL.times(3))
        second = await taken(other, principal)
        with pytest.raises(ApiError) as caught:
            await second.beside().drawn(SMALL)
        assert caught.value.status == 429
        second.close(0)
        beside.close(0)
        permit.close(35)

        def amounts() -> float:
            return sum(row["amount"] for row in place.rows("leases"))

        await until(lambda: amounts() == 2 + 35, "the database has heard of it: two requests, and what was used")


async def test_whoever_leaves_while_it_waits_has_taken_nothing(place: Place) -> None:
    principal = caller(Rules(rpm=1, concurrency=1))
    async with sharing(place) as one, sharing(place) as other:
        for _ in range(10):
            leaver = asyncio.create_task(taken(one, principal))
            await asyncio.sleep(0)
            leaver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaver
                raise AssertionError("it was let through before it could leave")
        await until(lambda: not sum(row["amount"] for row in place.rows("leases")), "nothing is taken")
        await taken(other, principal)


async def test_what_was_drawn_to_spare_needs_no_database_and_is_given_back_when_it_lapses(place: Place) -> None:
    now = 1_000.0
    principal, another = caller(Rules(rpm=3_200)), caller(Rules(rpm=1), "another")
    async with sharing(place, clock=lambda: now) as limits:
        await taken(limits, principal)
        await taken(limits, principal)  # the second within a second: there may be more
        spare = 3_198 // 32
        for _ in range(spare):
            permit = limits.permit(principal)
            assert permit is not None and permit.take(SMALL)
        permit = limits.permit(principal)
        assert permit is not None and not permit.take(SMALL)
        await permit.drawn(SMALL)
        now += 1.5
        await taken(limits, another)  # which takes along what has lapsed
        used = {row["subject"]: 0 for row in place.rows("leases")}
        for row in place.rows("leases"):
            used[row["subject"]] += row["amount"]
        assert used == {"key dev": spare + 3, "key another": 1}


@contextlib.contextmanager
def locked(file: Path) -> Iterator[Callable[[], None]]:
    """Nobody else writes to the database until the block ends, or what it gives is called."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield lambda: connection.execute("ROLLBACK") and None


async def test_the_loop_goes_on_while_requests_wait_for_the_database(database: Path) -> None:
    principal, others = caller(Rules(rpm=5)), caller(Rules(rpm=5), "other")
    async with sharing(SqlitePlace(database)) as limits:
        with locked(database) as unlock:
            waits = [asyncio.create_task(taken(limits, each)) for each in (principal, others)]
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not any(task.done() for task in waits)
            unlock()
            await asyncio.gather(*waits)


async def test_without_the_database_each_process_counts_for_itself_and_says_so_afterwards(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = SqlitePlace(database)
    principal = caller(Rules(rpm=3, tpm=1_000, concurrency=3))
    async with sharing(place, 0.2) as one, sharing(place) as other:
        before = await taken(one, principal)
        with locked(database):
            permits = [await taken(one, principal), await taken(one, principal)]
            assert one.rounds.trouble == "limits: each process counts for itself"
            assert "RPM" in (await refused(one, principal)).message
            permits[0].close(20)
            before.close(20)
        await until(lambda: one.rounds.up, "the database is back")
        assert one.rounds.trouble is None
        await until(lambda: sum(row["amount"] for row in place.rows("leases") if row["kind"] == "requests") == 3, "all is told")
        assert "RPM" in (await refused(other, principal)).message
        assert [row["amount"] for row in place.rows("leases") if row["kind"] == "concurrency"] == [1]
        permits[1].close(20)
    assert caplog.text.count("limits cannot be shared now") == 1
    assert caplog.text.count("limits are shared again") == 1


async def test_a_process_that_ends_leaves_no_place_taken(place: Place) -> None:
    principal = caller(Rules(concurrency=64))
    async with sharing(place) as limits:
        for permit in [await taken(limits, principal) for _ in range(4)]:
            permit.close(20)
    assert [row for row in place.rows("leases") if row["kind"] == "concurrency"] == []


async def test_a_changed_limit_counts_from_the_next_request_on(place: Place) -> None:
    async with sharing(place) as limits:
        for _ in range(2):
            await taken(limits, caller(Rules(rpm=2)))
        await refused(limits, caller(Rules(rpm=2)))
        await taken(limits, caller(Rules(rpm=3)))
        await refused(limits, caller(Rules(rpm=1)))


async def test_a_schema_that_is_just_being_made_is_waited_for(tmp_path: Path, migrated: Path) -> None:
    file = tmp_path / "late.db"
    link = Link(SqliteUrl(file))
    limits = SharedLimits(link)
    start = asyncio.create_task(limits.rounds.start(10))
    await asyncio.sleep(0.05)
    assert not limits.rounds.up
    shutil.copy(migrated, file)
    await start
    assert limits.rounds.up
    await link.close()
