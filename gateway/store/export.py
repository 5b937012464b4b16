"""Reading whole stretches of the record, batch by batch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.store.columns import DECISION, first_id
from gateway.store.database import Database
from gateway.store.lazily import Lazily
from gateway.store.queries import Record

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy import Connection

    from gateway.store import tables
else:
    sa, tables = Lazily("sqlalchemy"), Lazily("gateway.store.tables")


async def exported(database: Database, table: str, since: float, until: float, batch: int = 1_000) -> AsyncIterator[Sequence[Record]]:
    """The rows of a table (`columns.COLUMNS` names them) whose decisions came in that time, in the order of their ids, so many at once.

    Of what is said of decisions, only what is said of those that are there.

    since, until: seconds since 1970, the latter not in. Raises StoreError.

    Each batch is a transaction of its own; a row that is stored meanwhile may be missing.
    """
    after: tuple[Any, ...] | None = None
    while True:
        rows = await database.read(partial(export_some, table=table, since=since, until=until, after=after, limit=batch))
        if not rows:
            return
        yield rows
        after = tuple(rows[-1][column] for column in _order(table))


def export_some(
    connection: Connection, table: str, since: float, until: float, after: tuple[Any, ...] | None = None, limit: int = 1_000
) -> Sequence[Record]:
    """One batch: the rows behind `after`, the values of the last row's decision id and primary key."""
    source = tables.metadata.tables[table]
    order = [source.c[name] for name in _order(table)]
    id_ = source.c[DECISION[table]]
    query = sa.select(source).where(id_ >= first_id(since), id_ < first_id(until)).order_by(*order).limit(limit)
    if table in ("outcomes", "feedback"):
        query = query.where(sa.exists().where(tables.decisions.c.id == id_))
    if after is not None:
        query = query.where(sa.tuple_(*order) > sa.tuple_(*after))
    return [dict(row) for row in connection.execute(query).mappings()]


def _order(table: str) -> list[str]:
    """The decision's id, then what tells its rows apart."""
    id_ = DECISION[table]
    return [id_, *(column.name for column in tables.metadata.tables[table].primary_key if column.name != id_)]
