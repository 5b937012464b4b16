"""Keys of the database in a process that serves."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.access import register
from gateway.access.link import Link
from gateway.access.stored import StoredKeys
from gateway.store.database import Database
from gateway.store.keys import StoredKey
from gateway.store.urls import SqliteUrl
from tests.support.stored import Place
from tests.support.waiting import until

GRACE_S = 100.0


def key(name: str) -> StoredKey:
    return register.asked({"name": name, "limits": {"rpm": 5}}, 100.0, digest=hashlib.sha256(name.encode()).hexdigest())


@dataclass
class Following:
    """What a process has taken up, and its clock."""

    place: Place
    database: Database
    link: Link
    now: float = 1_000.0
    taken: list[Sequence[StoredKey]] = field(default_factory=list)
    keys: StoredKeys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = StoredKeys(self.link, self.taken.append, GRACE_S, lambda: self.now)

    async def make(self, name: str) -> StoredKey:
        return await self.database.run(lambda connection: register.made(connection, key(name), "boss"))

    def names(self) -> list[str]:
        return sorted(each.name for each in self.taken[-1])

    def away(self) -> None:
        self.place.execute("ALTER TABLE keys RENAME TO keys_away")

    def back(self) -> None:
        self.place.execute("ALTER TABLE keys_away RENAME TO keys")


@pytest.fixture
async def following(place: Place) -> AsyncIterator[Following]:
    database, link = Database(place.location), Link(place.location, 10)
    yield Following(place, database, link)
    await link.close()
    await database.close()


async def test_keys_are_taken_up_when_any_of_them_changed_and_not_else(following: Following) -> None:
    await following.keys.look()
    assert following.taken == [[]]
    made = await following.make("one")
    await following.make("two")
    for _ in range(3):
        await following.keys.look()
    assert len(following.taken) == 2
    assert sorted(following.taken[1], key=lambda each: each.name)[0] == made
    assert following.names() == ["one", "two"]

    await following.database.run(lambda connection: register.revoked(connection, made.id, "boss", 200.0))
    await following.keys.look()
    assert following.names() == ["two"]
    assert following.keys.trouble is None


async def test_without_the_database_they_go_on_for_a_time_then_they_stop_until_it_is_back(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await following.make("one")
    await following.keys.look()
    following.away()
    for _ in range(3):
        await following.keys.look()
    assert following.keys.trouble == "keys: those of the database may have changed"
    following.now += GRACE_S - 1
    await following.keys.look()
    assert following.names() == ["one"]
    following.now += 1
    await following.keys.look()
    assert following.names() == []
    assert following.keys.trouble == "keys: those of the database are out of use"
    await following.keys.look()
    assert len(following.taken) == 2

    following.back()
    await following.keys.look()
    assert following.names() == ["one"]
    assert following.keys.trouble is None
    assert caplog.text.count("cannot be read") == 1
    assert caplog.text.count("out of use") == 1


async def test_a_database_that_is_not_there_yet_has_no_keys_and_that_is_no_trouble(following: Following) -> None:
    following.away()
    await following.keys.look()
    assert (following.taken, following.keys.trouble) == ([], None)
    following.back()
    await following.make("one")
    await following.keys.look()
    assert following.names() == ["one"]


async def test_a_key_that_cannot_be_read_does_not_keep_the_others(following: Following, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("good", "scopes", "digest"):
        await following.make(name)
    following.place.execute("UPDATE keys SET scopes = 'no JSON' WHERE name = 'scopes'")
    following.place.execute("UPDATE keys SET sha256 = 'no digest' WHERE name = 'digest'")
    await following.keys.look()

    assert following.names() == ["good"]
    assert caplog.text.count("cannot be read, and is left out") == 2


async def test_they_are_looked_for_again_and_again_whatever_goes_wrong(following: Following, caplog: pytest.LogCaptureFixture) -> None:
    tried: list[Sequence[StoredKey]] = []

    def take_up(keys: Sequence[StoredKey]) -> None:
        tried.append(keys)
        if len(tried) == 1:
            raise RuntimeError("a fault of our own")

    await following.make("one")
    task = asyncio.create_task(StoredKeys(following.link, take_up, GRACE_S).run())
    try:
        await until(lambda: len(tried) == 2, "a second look")
        assert [key.name for key in tried[1]] == ["one"]
        assert "a fault of our own" in caplog.text
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_no_database_at_all_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A folder where the file should be cannot be opened."""
    link = Link(SqliteUrl(Path("/")), 5)
    keys = StoredKeys(link, lambda _: None, GRACE_S)
    for _ in range(3):
        await keys.look()
    await link.close()

    assert keys.trouble == "keys: those of the database are out of use"
    assert caplog.text.count("cannot be read") == 1
