"""Keys that are kept in the database, beside those of the configuration. Only digests, never a key.

Every function takes a connection that `Database.run` or, where nothing changes, `Database.read` hands it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gateway.store.lazily import Lazily

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Connection, RowMapping

    from gateway.store import inserting, tables
else:
    sa, tables, inserting = Lazily("sqlalchemy"), Lazily("gateway.store.tables"), Lazily("gateway.store.inserting")

_JSON = ("scopes", "models", "tags")


class StoredKey(msgspec.Struct, frozen=True):
    """A caller. sha256: digest of the key, 64 hex digits. models: names and patterns. rpm, tpm: requests and tokens a minute, None: no
    limit. expires, created, revoked: seconds since 1970."""

    id: str
    name: str
    sha256: str
    created: float
    scopes: tuple[str, ...] = ("inference",)
    tenant: str = "default"
    models: tuple[str, ...] = ("*",)
    tags: dict[str, str] = {}
    priority: Literal["interactive", "batch"] = "interactive"
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    expires: float | None = None
    revoked: float | None = None


def keys_version(connection: Connection) -> int:
    """Grows with every change of any key; 0: there never was one. Cheap enough to ask each second."""
    return int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(tables.keys.c.changed), 0))).scalar_one())


def list_keys(connection: Connection) -> list[StoredKey]:
    """All of them, revoked and expired ones too, the oldest first."""
    table = tables.keys
    return [_key(row) for row in connection.execute(sa.select(table).order_by(table.c.created, table.c.id)).mappings()]


def get_key(connection: Connection, id_: str) -> StoredKey | None:
    """One key by its id."""
    row = connection.execute(sa.select(tables.keys).where(tables.keys.c.id == id_)).mappings().first()
    return None if row is None else _key(row)


def add_key(connection: Connection, key: StoredKey) -> bool:
    """Stores a new key; False when its id, name or digest is taken, by a revoked key too."""
    inserting.alone(connection, tables.keys)
    return inserting.inserted(connection, tables.keys, _values(key) | {"changed": keys_version(connection) + 1})


def change_key(connection: Connection, key: StoredKey) -> bool:
    """Makes the key of this id what is given, but for its digest and `created`; False when there is none, or the name is another's."""
    inserting.alone(connection, tables.keys)
    table = tables.keys
    namesake = sa.select(table.c.id).where(table.c.name == key.name, table.c.id != key.id)
    if connection.execute(namesake).first() is not None:
        return False
    values = {name: value for name, value in _values(key).items() if name not in ("id", "sha256", "created")}
    change = sa.update(table).where(table.c.id == key.id).values(**values, changed=keys_version(connection) + 1)
    return connection.execute(change).rowcount > 0


def revoke_key(connection: Connection, id_: str, at: float) -> bool:
    """The key is no good from then on, seconds since 1970; False when there is none that was."""
    inserting.alone(connection, tables.keys)
    table = tables.keys
    change = sa.update(table).where(table.c.id == id_, table.c.revoked.is_(None)).values(revoked=at, changed=keys_version(connection) + 1)
    return connection.execute(change).rowcount > 0


def _values(key: StoredKey) -> dict[str, Any]:
    values = msgspec.structs.asdict(key)
    return values | {name: msgspec.json.encode(values[name], order="sorted").decode() for name in _JSON}


def _key(row: RowMapping) -> StoredKey:
    values = {name: row[name] for name in StoredKey.__struct_fields__}
    return msgspec.convert(values | {name: msgspec.json.decode(values[name]) for name in _JSON}, StoredKey)
