from __future__ import annotations

import pytest

from gateway.serving.ids import DecisionIds
from gateway.store.columns import COLUMNS, DECISION, first_id
from gateway.store.tables import metadata


@pytest.mark.parametrize("table", COLUMNS)
def test_rows_fit_the_tables(table: str) -> None:
    """Every column is one of the table's, once, and none is missing that must not be empty."""
    known = metadata.tables[table].columns
    assert len(set(COLUMNS[table])) == len(COLUMNS[table])
    assert set(COLUMNS[table]) <= set(known.keys())
    assert {column.name for column in known if not column.nullable} <= set(COLUMNS[table])
    assert DECISION[table] in COLUMNS[table]


@pytest.mark.parametrize("at_ms", [0, 1, 1_700_000_000_000, 1_700_000_000_001, 2**47])
def test_an_id_tells_when_its_request_came(at_ms: int) -> None:
    """In milliseconds, as the ids are minted."""
    minted = DecisionIds(b"", lambda: at_ms * 1_000_000 + 999_999).mint("t")
    assert first_id(at_ms / 1e3) <= minted < first_id((at_ms + 1) / 1e3)


def test_before_all_time() -> None:
    assert first_id(-1e9) == first_id(0) == "0" * 12
