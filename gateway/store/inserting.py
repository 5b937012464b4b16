"""Inserting a row that may be there already, in both dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

_COUNTED: Mapping[str, bool] = {"preserve_rowcount": True}


def inserted(connection: Connection, table: Table, values: Mapping[str, Any], newest: str | None = None) -> bool:
    """Inserts the row; False when one with such a key is there, which stays.

    newest: a column; of two rows with the same primary key the one with more in it stays, whichever comes first.
    """
    insert = (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table).values(values)
    if newest is None:
        return connection.execute(insert.on_conflict_do_nothing(), execution_options=_COUNTED).rowcount > 0
    keys = [column.name for column in table.primary_key]
    changes = {name: insert.excluded[name] for name in values if name not in keys}
    replace = insert.on_conflict_do_update(index_elements=keys, set_=changes, where=table.c[newest] <= insert.excluded[newest])
    return connection.execute(replace, execution_options=_COUNTED).rowcount > 0


def alone(connection: Connection, table: Table) -> None:
    """Until the transaction ends, nobody else changes the table. (In SQLite that is so for every transaction that writes.)"""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")
