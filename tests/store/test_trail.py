from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from gateway.access.link import Link
from gateway.store.audit import AuditWanted
from gateway.store.backlog import Backlog
from gateway.store.database import Database
from gateway.store.trail import Trail
from tests.support.stored import Place

ALL = AuditWanted()
Process = Callable[[], Trail]


def ticking() -> Callable[[], float]:
    """100, 101, ..."""
    times: Iterator[int] = iter(range(100, 10_000))
    return lambda: float(next(times))


@pytest.fixture
async def process(place: Place) -> AsyncIterator[Process]:
    """Makes what a process has that shares the database."""
    async with AsyncExitStack() as stack:

        def process() -> Trail:
            link, database = Link(place.location), Database(place.location)
            stack.push_async_callback(link.close)
            stack.push_async_callback(database.close)
            return Trail(Backlog(link.run), database, clock=ticking())

        yield process


def fill(trail: Trail) -> None:
    trail.add("ops", "config.put", "config", before_hash="a", after_hash="b", detail={"n": 1})
    trail.add("ops", "backend.drain", "gpu-a")
    trail.add("other", "backend.serve", "gpu-a")


async def test_without_a_database_it_is_remembered() -> None:
    trail = Trail(clock=ticking())
    fill(trail)

    entries, place, source = await trail.page(ALL, None, 10)

    assert [(each.created, each.key_name, each.action, each.target) for each in entries] == [
        (102, "other", "backend.serve", "gpu-a"),
        (101, "ops", "backend.drain", "gpu-a"),
        (100, "ops", "config.put", "config"),
    ]
    assert (entries[2].before_hash, entries[2].after_hash, entries[2].detail) == ("a", "b", {"n": 1})
    assert (place, source) == (None, "memory")


async def test_what_is_remembered_is_bounded() -> None:
    trail = Trail(keep=2, clock=ticking())
    fill(trail)

    assert [each.created for each in (await trail.page(ALL, None, 10))[0]] == [102, 101]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ALL, [102, 101, 100]),
        (AuditWanted(key_name="ops"), [101, 100]),
        (AuditWanted(action="backend.drain"), [101]),
        (AuditWanted(since=101.0), [102, 101]),
        (AuditWanted(key_name="ops", since=101.0), [101]),
        (AuditWanted(key_name="nobody"), []),
    ],
)
@pytest.mark.parametrize("kept", ["memory", "database"])
async def test_what_is_wanted_page_by_page(process: Process, kept: str, wanted: AuditWanted, found: list[float]) -> None:
    trail = Trail(clock=ticking()) if kept == "memory" else process()
    fill(trail)
    got, place = [], None
    for _ in range(4):
        entries, place, source = await trail.page(wanted, place, 1)
        assert source == kept
        got += [each.created for each in entries]
        if place is None:
            break

    assert got == found


async def test_it_is_stored(process: Process, place: Place) -> None:
    trail = process()
    fill(trail)

    entries, _, source = await trail.page(ALL, None, 10)

    rows = place.rows("audit")
    assert source == "database"
    assert [(row["key_name"], row["action"], row["target"], row["before_hash"], row["after_hash"]) for row in rows] == [
        ("ops", "config.put", "config", "a", "b"),
        ("ops", "backend.drain", "gpu-a", None, None),
        ("other", "backend.serve", "gpu-a", None, None),
    ]
    assert json.loads(rows[0]["detail"]) == {"n": 1}
    assert [each.id for each in entries] == [row["id"] for row in reversed(rows)]
    assert (await process().page(ALL, None, 10))[0] == entries, "another process reads the same"


async def test_the_database_is_away(process: Process, place: Place) -> None:
    """A change is never kept back: its entry waits."""
    trail = process()
    place.execute("ALTER TABLE audit RENAME TO gone")
    fill(trail)

    entries, _, source = await trail.page(ALL, None, 10)
    assert ([each.created for each in entries], source) == ([102, 101, 100], "memory")

    place.execute("ALTER TABLE gone RENAME TO audit")
    entries, _, source = await trail.page(ALL, None, 10)
    assert ([each.created for each in entries], source) == ([102, 101, 100], "database")
