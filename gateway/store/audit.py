"""Who changed what. Entries are added in the transaction of the change itself: neither is there without the other.

Every function takes a connection that `Database.run` or, where nothing changes, `Database.read` hands it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.store.lazily import Lazily
from gateway.store.queries import Place

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Connection, RowMapping

    from gateway.store import tables
else:
    sa, tables = Lazily("sqlalchemy"), Lazily("gateway.store.tables")


class AuditEntry(msgspec.Struct, frozen=True):
    """key_name: who. action, target: what was done to what. before_hash, after_hash: digests of the target. detail: JSON values without
    secrets. created: seconds since 1970."""

    id: str
    created: float
    key_name: str
    action: str
    target: str
    before_hash: str | None = None
    after_hash: str | None = None
    detail: Mapping[str, Any] | None = None


def add_audit(
    connection: Connection,
    created: float,
    key_name: str,
    action: str,
    target: str,
    *,
    before_hash: str | None = None,
    after_hash: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Stores what was done; see AuditEntry."""
    entry = AuditEntry(new_id(created), created, key_name, action, target, before_hash, after_hash, detail)
    connection.execute(sa.insert(tables.audit).values(dict(zip(AuditEntry.__struct_fields__, row_of(entry), strict=True))))
    return entry


def new_id(created: float) -> str:
    """Ids of later entries are greater."""
    return f"{int(created * 1e3):012x}{secrets.token_hex(8)}"


def row_of(entry: AuditEntry) -> tuple[str | float | None, ...]:
    """Its columns, in the order of AuditEntry."""
    *values, detail = msgspec.structs.astuple(entry)
    return (*values, None if detail is None else msgspec.json.encode(detail, order="sorted").decode())


class AuditWanted(msgspec.Struct, frozen=True):
    """Which entries; None: all. since: seconds since 1970."""

    key_name: str | None = None
    action: str | None = None
    since: float | None = None


_ALL: Final = AuditWanted()


def list_audit(
    connection: Connection, after: Place | None = None, limit: int = 50, wanted: AuditWanted = _ALL
) -> tuple[Sequence[AuditEntry], Place | None]:
    """The newest entries that are wanted, those behind `after` if it is given, and where the next page begins; None at the end."""
    c = tables.audit.c
    query = sa.select(tables.audit).order_by(c.created.desc(), c.id.desc()).limit(limit + 1)
    if after is not None:
        query = query.where(sa.tuple_(c.created, c.id) < sa.tuple_(*after))
    if wanted.key_name is not None:
        query = query.where(c.key_name == wanted.key_name)
    if wanted.action is not None:
        query = query.where(c.action == wanted.action)
    if wanted.since is not None:
        query = query.where(c.created >= wanted.since)
    found = [_entry(row) for row in connection.execute(query).mappings()]
    return found[:limit], Place(found[limit - 1].created, found[limit - 1].id) if len(found) > limit else None


def _entry(row: RowMapping) -> AuditEntry:
    detail = row["detail"]
    return AuditEntry(**{**row, "detail": None if detail is None else msgspec.json.decode(detail)})
