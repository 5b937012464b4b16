"""Rows as the writer wants them, in the sense of little."""

from __future__ import annotations

import contextlib

from gateway.store.columns import COLUMNS
from gateway.store.tables import metadata
from gateway.store.writer import Item
from tests.support.stored import Place

Value = str | int | float | bytes | bool | None


def item(table: str, **values: Value) -> Item:
    """A row with these values, and something that fits in the other columns."""
    columns = metadata.tables[table].columns

    def filler(name: str) -> Value:
        kind = columns[name].type.python_type
        return "x" if kind is str else kind(1)

    return table, tuple(values[name] if name in values else filler(name) for name in COLUMNS[table]), 0


def decision(id_: str, **values: Value) -> Item:
    """A row of `decisions`."""
    return item("decisions", id=id_, **values)


def fill(place: Place, *items: Item) -> None:
    """Stores rows as the writer would."""
    with contextlib.closing(place.sink()) as sink:
        sink.ready()
        sink.store(items)
