from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack

import pytest

from gateway.access.link import Link
from gateway.config.load import Loaded, parse
from gateway.config.versions import Versions
from gateway.store.backlog import Backlog
from gateway.store.database import Database
from gateway.store.versions import ConfigVersion
from tests.support.stored import Place

TEXT = "version: 1\nbackends: {a: {url: http://a, models: {m: m}}}\nkeys: [{name: k, sha256: " + "ab" * 32 + "}]\n"
SECRET = TEXT.replace("models: {m: m}", "models: {m: m}, key: s3cr3t-0123456789")
REFERENCE = TEXT.replace("models: {m: m}", "models: {m: m}, key: '${KEY}'")


def config(attempts: int) -> Loaded:
    """One of many that differ."""
    return loaded(f"{TEXT}models: {{m: {{attempts: {attempts}}}}}\n")


def loaded(text: str) -> Loaded:
    return parse(text, {"KEY": "k"})


def numbers(found: Sequence[ConfigVersion]) -> list[int]:
    return [each.version for each in found]


async def test_each_that_means_something_new_has_a_number() -> None:
    versions = Versions(clock=lambda: 100.0)
    assert [versions.running] == [None]
    first, second = config(1), config(2)

    versions.took(first)
    assert versions.running == 1
    versions.took(second)
    assert versions.running == 2
    versions.took(loaded("# as before\n" + first.text))
    assert versions.running == 1

    found, source = await versions.page(None, 10)
    assert (numbers(found), source) == ([2, 1], "memory")
    assert [(each.hash, each.created, each.by_key, each.text) for each in found] == [
        (second.hash, 100.0, None, None),
        (first.hash, 100.0, None, None),
    ]
    one = await versions.get(1)
    assert one is not None
    assert one.text == first.text, "as it first ran"
    assert await versions.get(3) is None


async def test_pages() -> None:
    versions = Versions()
    for attempts in range(1, 6):
        versions.took(config(attempts))

    assert numbers((await versions.page(None, 2))[0]) == [5, 4]
    assert numbers((await versions.page(4, 2))[0]) == [3, 2]
    assert numbers((await versions.page(2, 2))[0]) == [1]


async def test_without_a_database_the_newest_are_remembered_and_what_runs_above_all() -> None:
    versions = Versions(keep=2)
    for attempts in (1, 2, 1, 3):
        versions.took(config(attempts))

    assert numbers((await versions.page(None, 10))[0]) == [3, 1]


async def test_who_brought_it() -> None:
    versions = Versions()
    coming = config(2)
    versions.took(config(1))
    versions.coming(coming.hash, "ops")
    versions.took(coming)
    versions.took(config(3))

    assert [each.by_key for each in (await versions.page(None, 10))[0]] == [None, "ops", None]


async def test_a_text_with_secrets_is_not_kept_until_it_comes_without() -> None:
    versions = Versions()
    versions.took(loaded(SECRET))
    first = await versions.get(1)
    assert first is not None and first.text is None

    versions.took(loaded(REFERENCE))

    again = await versions.get(1)
    assert again is not None and again.text == REFERENCE


Process = Callable[[], Versions]


@pytest.fixture
async def process(place: Place) -> AsyncIterator[Process]:
    """Makes what a process has that shares the database."""
    async with AsyncExitStack() as stack:

        def process() -> Versions:
            link, database = Link(place.location), Database(place.location)
            stack.push_async_callback(link.close)
            stack.push_async_callback(database.close)
            return Versions(Backlog(link.run), database)

        yield process


async def test_all_who_share_a_database_have_the_same_numbers(process: Process, place: Place) -> None:
    one, other = process(), process()
    one.took(config(1))
    assert not one.running, "the database gives it"
    await one.settle()
    other.took(config(2))
    await other.settle()
    other.took(config(1))
    await other.settle()
    assert [one.running, other.running] == [1, 1]

    found, source = await one.page(None, 10)

    assert (numbers(found), source) == ([2, 1], "database")
    assert [(row["version"], row["hash"], row["text"]) for row in place.rows("config_versions")] == [
        (1, config(1).hash, config(1).text),
        (2, config(2).hash, config(2).text),
    ]
    second = await one.get(2)
    assert second is not None and second.text == config(2).text
    assert await one.get(3) is None


async def test_many_at_once(process: Process, place: Place) -> None:
    """Two for each configuration: each has one number, and each number one."""
    processes = [process() for _ in range(8)]
    for n, each in enumerate(processes):
        each.took(config(n % 4 + 1))

    async with asyncio.timeout(30):
        while any(each.running is None for each in processes):
            await asyncio.gather(*(each.settle() for each in processes))

    rows = place.rows("config_versions")
    assert sorted(row["version"] for row in rows) == [1, 2, 3, 4]
    assert {row["hash"] for row in rows} == {config(n).hash for n in range(1, 5)}
    assert [each.running for each in processes[:4]] == [each.running for each in processes[4:]]


async def test_the_key_is_known_when_another_worker_was_quicker(process: Process, place: Place) -> None:
    brought, other = process(), process()
    earlier = config(1)
    other.took(earlier)
    await other.settle()
    brought.coming(earlier.hash, "late")  # it ran before anybody asked for it
    brought.took(earlier)
    await brought.settle()

    brought.coming(config(2).hash, "ops")
    other.took(config(2))
    await other.settle()
    brought.took(config(2))
    await brought.settle()

    assert [row["by_key"] for row in place.rows("config_versions")] == [None, "ops"]


async def test_a_text_without_secrets_is_filled_in(process: Process, place: Place) -> None:
    first, later = process(), process()
    first.took(loaded(SECRET))
    await first.settle()
    assert [row["text"] for row in place.rows("config_versions")] == [None]

    later.took(loaded(REFERENCE))
    await later.settle()

    assert [(row["version"], row["text"]) for row in place.rows("config_versions")] == [(1, REFERENCE)]
    assert "s3cr3t" not in place.everything().decode("latin-1")


async def test_a_database_that_is_away(process: Process, place: Place) -> None:
    """What runs is remembered here, and stored when it is back."""
    versions = process()
    versions.took(config(1))
    await versions.settle()
    place.execute("ALTER TABLE config_versions RENAME TO gone")
    versions.took(config(2))
    await versions.settle()

    assert versions.running is None
    found, source = await versions.page(None, 10)
    assert (numbers(found), source) == ([1], "memory")
    first = await versions.get(1)
    assert first is not None and first.text == config(1).text

    place.execute("ALTER TABLE gone RENAME TO config_versions")
    found, source = await versions.page(None, 10)
    assert (numbers(found), source) == ([2, 1], "database")
    assert versions.running == 2
