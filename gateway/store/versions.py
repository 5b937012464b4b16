"""The configurations that were taken up, one after another.

Every function takes a connection that `Database.run` or, where nothing changes, `Database.read` hands it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gateway.store.lazily import Lazily

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Connection

    from gateway.store import inserting, tables
else:
    sa, tables, inserting = Lazily("sqlalchemy"), Lazily("gateway.store.tables"), Lazily("gateway.store.inserting")


class ConfigVersion(msgspec.Struct, frozen=True):
    """version: 1, 2, ... hash: the configuration's digest. created: seconds since 1970. by_key: name of the key that brought it, None: it
    stood in the file. text: None when it held secrets, or was not asked for."""

    version: int
    hash: str
    created: float
    by_key: str | None = None
    text: str | None = None


def add_version(connection: Connection, hash_: str, created: float, by_key: str | None = None, text: str | None = None) -> int:
    """Stores the next version; its number."""
    inserting.alone(connection, tables.config_versions)
    table = tables.config_versions
    version = int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(table.c.version), 0))).scalar_one()) + 1
    connection.execute(sa.insert(table).values(version=version, hash=hash_, created=created, by_key=by_key, text=text))
    return version


def list_versions(connection: Connection, before: int | None = None, limit: int = 50) -> list[ConfigVersion]:
    """The newest first, without their texts; before: those with a lesser number."""
    c = tables.config_versions.c
    query = sa.select(c.version, c.hash, c.created, c.by_key).order_by(c.version.desc()).limit(limit)
    rows = connection.execute(query if before is None else query.where(c.version < before)).mappings()
    return [ConfigVersion(**row) for row in rows]


def get_version(connection: Connection, version: int) -> ConfigVersion | None:
    """One of them, with its text."""
    table = tables.config_versions
    row = connection.execute(sa.select(table).where(table.c.version == version)).mappings().first()
    return None if row is None else ConfigVersion(**row)
