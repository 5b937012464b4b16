from __future__ import annotations

import asyncio

from gateway.store import versions
from gateway.store.database import Database
from gateway.store.versions import ConfigVersion
from tests.support.stored import Place


async def test_versions_count_up(asked: Database) -> None:
    assert await asked.read(versions.list_versions) == []
    added = [
        await asked.run(lambda connection: versions.add_version(connection, "h1", 1.0)),
        await asked.run(lambda connection: versions.add_version(connection, "h2", 2.0, "admin", "version: 1\n")),
        await asked.run(lambda connection: versions.add_version(connection, "h1", 3.0, "admin")),
    ]
    assert added == [1, 2, 3]
    assert await asked.read(versions.list_versions) == [
        ConfigVersion(3, "h1", 3.0, "admin"),
        ConfigVersion(2, "h2", 2.0, "admin"),
        ConfigVersion(1, "h1", 1.0),
    ]
    assert await asked.read(lambda connection: versions.get_version(connection, 2)) == ConfigVersion(2, "h2", 2.0, "admin", "version: 1\n")
    assert await asked.read(lambda connection: versions.get_version(connection, 4)) is None


async def test_page_by_page(asked: Database) -> None:
    for n in range(5):
        await asked.run(lambda connection, n=n: versions.add_version(connection, f"h{n}", float(n)))
    first = await asked.read(lambda connection: versions.list_versions(connection, limit=3))
    second = await asked.read(lambda connection: versions.list_versions(connection, first[-1].version, limit=3))
    assert [each.version for each in (*first, *second)] == [5, 4, 3, 2, 1]


async def test_two_replicas_never_have_one_number(place: Place) -> None:
    replicas = [Database(place.location), Database(place.location)]
    added = await asyncio.gather(
        *(replicas[n % 2].run(lambda connection, n=n: versions.add_version(connection, f"h{n}", 1.0)) for n in range(20))
    )
    assert sorted(added) == list(range(1, 21))
    for each in replicas:
        await each.close()
