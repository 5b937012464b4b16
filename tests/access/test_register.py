"""The database's keys changed, with their entries in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection

from gateway.access import register
from gateway.access.register import Taken, Wrong
from gateway.store.audit import list_audit
from gateway.store.database import Database
from gateway.store.keys import StoredKey, get_key, keys_version
from tests.support.stored import Place

DIGEST = "a" * 64


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Database]:
    database = Database(place.location)
    yield database
    await database.close()


def key(**properties: Any) -> StoredKey:
    return register.asked({"name": "web"} | properties, 100.0, digest=DIGEST)


def test_a_key_is_as_it_is_asked_for() -> None:
    found = key(
        scopes=["inference", "metrics"],
        tenant="shop",
        models=["qwen-*"],
        tags={"team": "red"},
        priority="batch",
        limits={"rpm": 5, "concurrency": None},
        expires="2030-12-31",
    )

    assert found.id.startswith("key-")
    assert (found.name, found.sha256, found.created, found.revoked) == ("web", DIGEST, 100.0, None)
    assert (found.scopes, found.tenant, found.models) == (("inference", "metrics"), "shop", ("qwen-*",))
    assert (found.tags, found.priority) == ({"team": "red"}, "batch")
    assert (found.rpm, found.tpm, found.concurrency) == (5, None, None)
    assert found.expires == datetime(2031, 1, 1, tzinfo=UTC).timestamp()  # the end of that day


def test_what_is_not_said_is_as_in_the_configuration() -> None:
    found = key()

    assert (found.scopes, found.tenant, found.models, found.tags, found.priority) == (("inference",), "default", ("*",), {}, "interactive")
    assert (found.rpm, found.tpm, found.concurrency, found.expires) == (None, None, None, None)


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [(None, None), (1_800_000_000, 1_800_000_000), (1.5, 1.5), ("1970-01-02T00:00:00Z", 86_400), ("1970-01-02T02:00:00+02:00", 86_400)],
)
def test_when_it_ends_may_be_said_in_several_ways(expires: Any, seconds: float | None) -> None:
    assert key(expires=expires).expires == seconds


@pytest.mark.parametrize(
    ("properties", "where", "unknown"),
    [
        ({"nmae": "x"}, "nmae", True),
        ({"sha256": DIGEST}, "sha256", True),
        ({"id": "key-1"}, "id", True),
        ({"name": ""}, "name", False),
        ({"name": 5}, "name", False),
        ({"name": "x" * 101}, "name", False),
        ({"name": "a\0b"}, "name", False),
        ({"name": "a\x1bb"}, "name", False),
        ({"tenant": "a\0b"}, "tenant", False),
        ({"tags": {"a": "\0"}}, "tags", False),
        ({"tags": {str(n): "" for n in range(17)}}, "tags", False),
        ({"models": ["a\0"]}, "models", False),
        ({"models": "*"}, "models", False),
        ({"scopes": ["root"]}, "scopes.0", False),
        ({"limits": {"rpm": 0}}, "limits.rpm", False),
        ({"limits": {"rpm": 1.5}}, "limits.rpm", False),
        ({"limits": {"rpm": "5"}}, "limits.rpm", False),
        ({"limits": {"rpd": 5}}, "limits.rpd", True),
        ({"limits": 5}, "limits", False),
        ({"expires": "tomorrow"}, "expires", False),
        ({"expires": "2030-12-31T10:00:00"}, "expires", False),
        ({"expires": True}, "expires", False),
        ({"expires": -1}, "expires", False),
        ({"expires": 1e300}, "expires", False),
        ({"expires": []}, "expires", False),
    ],
)
def test_what_cannot_be_is_named(properties: dict[str, Any], where: str, unknown: bool) -> None:
    with pytest.raises(Wrong) as caught:
        key(**properties)
    assert (caught.value.where, caught.value.unknown) == (where, unknown)


def test_of_a_change_what_is_not_named_stays() -> None:
    before = key(tenant="shop", limits={"rpm": 5, "tpm": 100}, expires=5, tags={"a": "b"})

    after = register.asked({"limits": {"rpm": None, "concurrency": 2}, "models": ["m"]}, 900.0, before)
    assert (after.rpm, after.tpm, after.concurrency) == (None, 100, 2)
    assert (after.models, after.tenant, after.tags, after.expires) == (("m",), "shop", {"a": "b"}, 5)
    assert (after.id, after.name, after.sha256, after.created) == (before.id, "web", DIGEST, 100.0)
    assert register.asked({"expires": None}, 900.0, before).expires is None
    with pytest.raises(Wrong, match="name"):
        register.asked({"name": "other"}, 900.0, before)


async def test_each_change_is_in_the_audit_log_with_what_it_was_before(store: Database) -> None:
    made = await store.run(lambda connection: register.made(connection, key(), "boss", {"request_id": "r-1"}))

    def slower(connection: Connection) -> StoredKey | None:
        return register.altered(connection, made.id, lambda before: register.asked({"limits": {"rpm": 1}}, 200.0, before), "boss", 200.0)

    changed = await store.run(slower)
    assert changed is not None and changed.rpm == 1
    assert await store.run(slower) == changed  # again, and nothing is different
    revoked = await store.run(lambda connection: register.revoked(connection, made.id, "boss", 300.0))
    assert revoked is not None and revoked.revoked == 300.0
    again = await store.run(lambda connection: register.revoked(connection, made.id, "boss", 400.0))
    assert again is not None and again.revoked == 300.0

    entries, _ = await store.read(list_audit)
    assert [(entry.action, entry.target, entry.key_name) for entry in entries] == [
        ("key.revoke", "web", "boss"),
        ("key.change", "web", "boss"),
        ("key.new", "web", "boss"),
    ]
    last, middle, first = entries
    assert (first.before_hash, first.detail) == (None, {"request_id": "r-1"})
    assert (middle.before_hash, last.before_hash) == (first.after_hash, middle.after_hash)
    assert DIGEST not in repr(entries)
    assert await store.read(keys_version) == 3


async def test_a_name_is_given_once_and_not_again_when_its_key_is_revoked(store: Database) -> None:
    made = await store.run(lambda connection: register.made(connection, key(), "boss"))
    await store.run(lambda connection: register.revoked(connection, made.id, "boss", 300.0))

    another = register.asked({"name": "web"}, 400.0, digest="b" * 64)
    with pytest.raises(Taken):
        await store.run(lambda connection: register.made(connection, another, "boss"))
    assert await store.read(lambda connection: register.found(connection, "web")) == await store.read(
        lambda connection: get_key(connection, made.id)
    )
    assert len((await store.read(list_audit))[0]) == 2


async def test_there_is_nothing_to_change_of_a_key_that_is_not_there(store: Database) -> None:
    assert await store.run(lambda connection: register.revoked(connection, "key-0", "boss", 1.0)) is None
    assert await store.run(lambda connection: register.altered(connection, "key-0", lambda found: found, "boss", 1.0)) is None
    assert await store.read(lambda connection: register.found(connection, "nobody")) is None
