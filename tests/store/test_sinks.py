"""What the writer relies on, of either kind of database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.store.columns import COLUMNS
from gateway.store.tables import metadata
from gateway.store.writer import RowsRefused, Sink, StoreError
from tests.store.making import Value, decision, item
from tests.support.stored import Place


@pytest.fixture
def sink(place: Place) -> Iterator[Sink]:
    with contextlib.closing(place.sink()) as sink:
        sink.ready()
        yield sink


def ids(place: Place) -> list[str]:
    return [each["id"] for each in place.rows()]


def test_a_row_comes_once(sink: Sink, place: Place) -> None:
    """However often it is stored; the first word stands."""
    sink.store([decision("a", tenant="first"), decision("b")])
    sink.store([decision("a", tenant="second"), decision("c"), decision("c")])
    assert ids(place) == ["a", "b", "c"]
    assert place.rows()[0]["tenant"] == "first"


@pytest.mark.parametrize("table", COLUMNS)
def test_every_value_comes_back(sink: Sink, place: Place, table: str) -> None:
    """Of each table, with what is hard to write down: quotes, tabs, backslashes, other alphabets, and very large and small numbers."""
    hard = "'\"\t\\N\\n\n\x01é漢🦊"
    values: dict[str, Value] = {}
    for (_, made, _), column in ((item(table), name) for name in COLUMNS[table]):
        was = made[COLUMNS[table].index(column)]
        if isinstance(was, float):
            values[column] = 1.7976931348623157e308 if column == "created" else 1 / 3
        elif isinstance(was, str):
            values[column] = f"{hard}{column}"
    stored = item(table, **values)
    beside = decision(str(values.get("decision_id", "beside")))
    sink.store([stored, *([beside] if table != "decisions" else [])])
    (row,) = place.rows(table)
    assert tuple(row[name] for name in COLUMNS[table]) == stored[1]


def test_what_is_not_known_stays_unknown(sink: Sink, place: Place) -> None:
    sink.store([decision("a", status=None, cost_usd=None, backend=None, usage_estimated=None), decision("b", usage_estimated=False)])
    first, second = place.rows()
    assert [first[name] for name in ("status", "cost_usd", "backend", "usage_estimated")] == [None] * 4
    assert second["usage_estimated"] == False  # noqa: E712 (SQLite knows 0 and 1)


def test_rows_of_several_tables_are_one_transaction(sink: Sink, place: Place) -> None:
    with pytest.raises(RowsRefused):
        sink.store([decision("a"), item("calls", decision_id="a", n=0, backend=None)])
    assert ids(place) == []
    sink.store([decision("a"), item("calls", decision_id="a", n=0), item("calls", decision_id="a", n=1)])
    assert ids(place) == ["a"]
    assert [(row["decision_id"], row["n"]) for row in place.rows("calls")] == [("a", 0), ("a", 1)]


REFUSED: list[Any] = [
    ("nothing where something must be", {"tenant": None}),
    ("a number that is too large", {"prompt_tokens": 2**70}),
    ("half a character", {"tenant": "SECRET\ud800"}),
    ("a value of no known kind", {"tenant": {"SECRET": 1}}),
]


@pytest.mark.parametrize("values", [values for _, values in REFUSED], ids=[name for name, _ in REFUSED])
def test_a_row_that_is_refused_for_good(sink: Sink, place: Place, values: Any) -> None:
    """All or none; that it is the row and not the database is told, in words that hold none of it; and the next rows are taken."""
    with pytest.raises(RowsRefused) as refused:
        sink.store([decision("a"), decision("b", **values)])
    assert "SECRET" not in str(refused.value) + refused.value.detail
    sink.ready()
    sink.store([decision("c")])
    assert ids(place) == ["c"]


def test_a_table_that_is_not_known(sink: Sink, place: Place) -> None:
    with pytest.raises(RowsRefused, match="no rows are written"):
        sink.store([decision("a"), ("alembic_version", ("0999_later",), 0)])
    sink.store([decision("b")])
    assert ids(place) == ["b"]


def test_a_schema_that_went_missing_is_made_again(sink: Sink, place: Place) -> None:
    place.execute("DROP TABLE decisions; DROP TABLE alembic_version")
    for table in metadata.tables.keys() - {"decisions"}:
        place.execute(f"DROP TABLE {table}")
    with pytest.raises(StoreError) as failed:
        sink.store([decision("a")])
    assert not isinstance(failed.value, RowsRefused), "the rows wait"
    sink.ready()
    sink.store([decision("a")])
    assert ids(place) == ["a"]


def test_a_newer_schema_takes_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica is a version ahead and has added a column: there is nothing to migrate."""
    monkeypatch.setattr("gateway.store.upgrade.subprocess.run", lambda *_args, **_options: pytest.fail("it migrates"))
    place.execute("ALTER TABLE decisions ADD COLUMN mood TEXT")
    place.execute("UPDATE alembic_version SET version_num = '0999_later'")
    with contextlib.closing(place.sink()) as other:
        other.ready()
        other.store([decision("a")])
    assert place.rows()[0]["mood"] is None


@pytest.mark.parametrize("table", COLUMNS)
def test_the_oldest_are_deleted_so_many_at_a_time(sink: Sink, place: Place, table: str) -> None:
    """Those of decisions with a lesser id, and no others."""
    for n, id_ in enumerate(("0b", "0a", "0d", "0c")):
        own = {"id": id_} if table == "decisions" else {"decision_id": id_} | ({"id": str(n)} if table == "feedback" else {})
        sink.store([item(table, **own), *([] if table == "decisions" else [decision(id_)])])

    def left() -> list[str]:
        return sorted(row["id" if table == "decisions" else "decision_id"] for row in place.rows(table))

    assert sink.expire(table, "0a", 2) == 0
    assert (sink.expire(table, "0d", 2), left()) == (2, ["0c", "0d"])
    assert (sink.expire(table, "0d", 2), left()) == (1, ["0d"])
    assert (sink.expire(table, "0d", 2), left()) == (0, ["0d"])


def test_closed_or_never_opened(place: Place) -> None:
    sink = place.sink()
    with pytest.raises(StoreError, match="not open"):
        sink.store([decision("a")])
    with pytest.raises(StoreError, match="not open"):
        sink.expire("decisions", "0", 1)
    sink.ready()
    sink.close()
    sink.close()
    with pytest.raises(StoreError, match="not open"):
        sink.store([decision("a")])
    assert ids(place) == []
