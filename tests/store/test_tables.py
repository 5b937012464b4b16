from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from gateway.store import record, tables


def test_a_row_has_the_table_s_columns() -> None:
    assert list(record.COLUMNS) == [column.name for column in tables.decisions.columns]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [("", "decisions_by_time"), ("tenant = 'a' AND", "decisions_by_tenant"), ("served_model = 'm' AND", "decisions_by_model")],
)
def test_the_newest_are_read_from_an_index_page_by_page(migrated: Path, wanted: str, index: str) -> None:
    """No row is read that is not answered, nothing is sorted: a page costs the same whatever the table holds."""
    query = f"SELECT * FROM decisions WHERE {wanted} (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT 50"
    with contextlib.closing(sqlite3.connect(migrated)) as connection:
        (plan,) = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", (1e9, "x"))]
    assert f"USING INDEX {index} " in plan
    assert "(created,id)<" in plan
