from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.store.columns import COLUMNS, DECISION, first_id
from gateway.store.database import Database
from gateway.store.export import exported
from gateway.store.writer import Item
from tests.store.making import decision, fill, item
from tests.support.stored import Place


def rows_of(table: str, at: float, n: int) -> list[Item]:
    """What came at that time: for tables with more than one row a decision, two of them; and the decision."""
    id_ = f"{first_id(at)}{n:04}"
    own: dict[str, Any] = {DECISION[table]: id_}
    more: dict[str, list[dict[str, Any]]] = {
        "calls": [{"n": 0}, {"n": 1}],
        "outcomes": [{"metric": "cost"}, {"metric": "quality"}],
        "feedback": [{"id": f"f{at}-{n}", "tenant": "t"}, {"id": f"f{at}-{n}", "tenant": "u"}],
    }
    rows = [item(table, **own, **each) for each in more.get(table, [{}])]
    return rows if table == "decisions" else [decision(id_), *rows]


@pytest.mark.parametrize("table", COLUMNS)
async def test_a_stretch_of_time_batch_by_batch(asked: Database, place: Place, table: str) -> None:
    """Every row once, in the order of the decisions, and none of before or after."""
    fill(place, *(each for at in (30.0, 10.0, 20.0, 19.999, 29.999, 9.999) for n in (1, 0) for each in rows_of(table, at, n)))
    batches: list[Sequence[Any]] = [batch async for batch in exported(asked, table, 10.0, 30.0, batch=3)]
    found = [row for batch in batches for row in batch]
    id_ = DECISION[table]
    wanted = [row for row in place.rows(table) if first_id(10.0) <= row[id_] < first_id(30.0)]
    order = [name for name in ("n", "metric", "tenant") if name in found[0]]
    assert found == sorted(wanted, key=lambda row: [row[id_], *(row[name] for name in order[:1])])
    assert [len(batch) for batch in batches[:-1]] == [3] * (len(batches) - 1)


@pytest.mark.parametrize("table", ["outcomes", "feedback"])
async def test_what_is_said_of_decisions_that_are_not_there(asked: Database, place: Place, table: str) -> None:
    """They have not come yet, or were erased."""
    here, gone = (f"{first_id(time.time())}{letter}" for letter in "ab")
    fill(place, decision(here), *(item(table, decision_id=id_, id=id_) for id_ in (here, gone)))
    assert len(place.rows(table)) == 2
    (batch,) = [batch async for batch in exported(asked, table, 0.0, time.time() + 10)]
    assert {row["decision_id"] for row in batch} == {here}


async def test_nothing(asked: Database) -> None:
    assert [batch async for batch in exported(asked, "decisions", 0.0, 1e9)] == []


async def test_a_table_that_is_not_of_decisions(asked: Database) -> None:
    with pytest.raises(KeyError):
        await anext(exported(asked, "keys", 0.0, 1e9))
