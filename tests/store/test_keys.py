from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.store import keys
from gateway.store.database import Database
from gateway.store.keys import StoredKey
from tests.support.stored import Place

KEY = StoredKey("id-1", "ci", "ab" * 32, 10.0)
FULL = StoredKey(
    "id-2",
    "bätch",
    "cd" * 32,
    11.0,
    scopes=("inference", "admin"),
    tenant="shop",
    models=("qwen-*", 'odd "name"'),
    tags={"team": "search"},
    priority="batch",
    rpm=60,
    tpm=2**40,
    concurrency=4,
    expires=20.5,
)


async def add(asked: Database, key: StoredKey) -> bool:
    return await asked.run(lambda connection: keys.add_key(connection, key))


async def test_keys_come_back_as_they_were(asked: Database) -> None:
    assert await asked.read(keys.list_keys) == []
    assert [await add(asked, key) for key in (FULL, KEY)] == [True, True]
    assert await asked.read(keys.list_keys) == [KEY, FULL]
    assert await asked.read(lambda connection: keys.get_key(connection, "id-2")) == FULL
    assert await asked.read(lambda connection: keys.get_key(connection, "id-3")) is None


@pytest.mark.parametrize("taken", [{"id": "id-1"}, {"name": "ci"}, {"sha256": "ab" * 32}])
async def test_what_is_taken(asked: Database, taken: dict[str, Any]) -> None:
    """By a revoked key, too: rows tell of it by its name."""
    await add(asked, KEY)
    await asked.run(lambda connection: keys.revoke_key(connection, "id-1", 12.0))
    version = await asked.read(keys.keys_version)
    assert not await add(asked, msgspec.structs.replace(FULL, **taken))
    assert len(await asked.read(keys.list_keys)) == 1
    assert await asked.read(keys.keys_version) == version


async def test_changing(asked: Database) -> None:
    """All but the digest; under a name of its own."""
    await add(asked, KEY)
    await add(asked, FULL)
    changed = msgspec.structs.replace(KEY, name="web", rpm=5, tags={"a": "b"}, sha256="ef" * 32, created=99.0)
    assert await asked.run(lambda connection: keys.change_key(connection, changed))
    assert await asked.read(lambda connection: keys.get_key(connection, "id-1")) == msgspec.structs.replace(
        KEY, name="web", rpm=5, tags={"a": "b"}
    )
    assert not await asked.run(lambda connection: keys.change_key(connection, msgspec.structs.replace(KEY, name=FULL.name)))
    assert not await asked.run(lambda connection: keys.change_key(connection, msgspec.structs.replace(KEY, id="id-9", name="new")))


async def test_revoking(asked: Database) -> None:
    """Once; the first time stands."""
    await add(asked, KEY)
    assert await asked.run(lambda connection: keys.revoke_key(connection, "id-1", 12.0))
    assert not await asked.run(lambda connection: keys.revoke_key(connection, "id-1", 13.0))
    assert not await asked.run(lambda connection: keys.revoke_key(connection, "id-2", 13.0))
    assert await asked.read(keys.list_keys) == [msgspec.structs.replace(KEY, revoked=12.0)]


async def test_every_change_is_another_version(asked: Database) -> None:
    """Nothing else is."""
    seen = [await asked.read(keys.keys_version)]

    async def did(work: Any) -> None:
        await asked.run(work)
        seen.append(await asked.read(keys.keys_version))

    await did(lambda connection: keys.add_key(connection, KEY))
    await did(lambda connection: keys.add_key(connection, FULL))
    await did(lambda connection: keys.change_key(connection, msgspec.structs.replace(KEY, rpm=1)))
    await did(lambda connection: keys.revoke_key(connection, "id-2", 12.0))
    assert seen == [0, 1, 2, 3, 4]
    await did(lambda connection: keys.revoke_key(connection, "id-2", 12.0))
    await did(lambda connection: keys.list_keys(connection))
    assert seen[-1] == 4


async def test_changes_at_once_take_turns(place: Place) -> None:
    """Of two replicas as well: each has a version of its own, so that none is overlooked."""
    replicas = [Database(place.location), Database(place.location)]
    many = [StoredKey(f"id-{n}", f"key-{n}", f"{n:064x}", 1.0) for n in range(20)]
    assert await asyncio.gather(*(add(replicas[n % 2], key) for n, key in enumerate(many))) == [True] * 20
    assert sorted(row["changed"] for row in place.rows("keys")) == list(range(1, 21))
    for each in replicas:
        await each.close()
