"""Asking for decisions, of either kind of database, compared with what plain Python makes of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path as File
from random import Random
from typing import Any

import pytest
from sqlalchemy import text

from gateway.store import queries
from gateway.store.database import Database
from gateway.store.queries import Outcome, Place, Wanted
from gateway.store.urls import SqliteUrl
from tests.store.making import decision, fill, item
from tests.support import stored

VALUES: Mapping[str, tuple[str, tuple[str | None, ...]]] = {
    "tenant": ("tenant", ("t1", "t2", "t3")),
    "key_name": ("key_name", ("k1", "k2")),
    "model": ("served_model", ("m1", "m2", None)),
    "policy": ("policy", ("none", "split")),
    "outcome": ("outcome", ("ok", "backend_error", "client_closed")),
    "session": ("session", ("s1", "s2", None)),
}


@pytest.fixture
def rows(place: stored.Place) -> list[dict[str, Any]]:
    """200 decisions of all sorts, several at one moment, the newest first."""
    random = Random(7)
    made = [
        {"id": f"{random.randrange(10**9):09}", "created": float(random.randrange(50))}
        | {column: random.choice(values) for column, values in VALUES.values()}
        for _ in range(200)
    ]
    fill(place, *(decision(str(row.pop("id")), **row) for row in made))
    found = place.rows()
    random.shuffle(found)
    return sorted(found, key=lambda row: (row["created"], row["id"]), reverse=True)


def fits(row: Mapping[str, Any], wanted: Wanted) -> bool:
    equal = all(getattr(wanted, name) in (None, row[column]) for name, (column, _) in VALUES.items())
    return equal and (wanted.since or 0) <= row["created"] < (wanted.until or 1e9)


WANTED = [
    Wanted(),
    *(Wanted(**{name: value}) for name, (_, values) in VALUES.items() for value in values if value is not None),
    Wanted(tenant="t1", outcome="ok"),
    Wanted(tenant="t2", model="m1", policy="split", key_name="k1"),
    Wanted(since=10.0, until=20.0),
    Wanted(until=1.0, session="s2"),
    Wanted(tenant="nobody"),
]


@pytest.mark.parametrize("limit", [1, 7, 200, 201])
async def test_pages(asked: Database, rows: list[dict[str, Any]], limit: int) -> None:
    """The newest first, each once, whatever is wanted."""
    for wanted in WANTED if limit == 7 else WANTED[:1]:
        found: list[Any] = []
        after: Place | None = None
        while True:
            page = await asked.read(partial(queries.page, wanted=wanted, after=after, limit=limit))
            assert len(page.rows) == limit or page.next is None
            found += page.rows
            after = page.next
            if after is None:
                break
            assert Place.read(str(after)) == after
        assert found == [row for row in rows if fits(row, wanted)], wanted


async def test_a_page_stays_where_it_was_when_new_rows_come(asked: Database, place: stored.Place, rows: list[dict[str, Any]]) -> None:
    first = await asked.read(lambda connection: queries.page(connection, Wanted(), limit=10))
    fill(place, decision("z", created=100.0))
    second = await asked.read(lambda connection: queries.page(connection, Wanted(), first.next, limit=10))
    assert [*first.rows, *second.rows] == rows[:20]


async def test_counting(asked: Database, rows: list[dict[str, Any]]) -> None:
    for wanted in WANTED:
        counted = await asked.read(partial(queries.count, wanted=wanted))
        assert counted == sum(fits(row, wanted) for row in rows), wanted
    assert await asked.read(lambda connection: queries.count(connection, Wanted(), most=199)) == 200
    assert await asked.read(lambda connection: queries.count(connection, Wanted(), most=20)) == 21, "more than that are not counted"


async def test_a_place_outside_of_what_is_wanted(asked: Database, rows: list[dict[str, Any]]) -> None:
    """Whichever bound is nearer counts."""
    wanted = Wanted(since=10.0, until=20.0)
    for after in (Place(30.0, "x"), Place(20.0, "x"), Place(20.0, ""), Place(15.0, "x"), Place(5.0, "x")):
        page = await asked.read(lambda connection, after=after: queries.page(connection, wanted, after, 200))
        assert page.rows == [row for row in rows if fits(row, wanted) and (row["created"], row["id"]) < after]


@pytest.mark.parametrize("text_", ["", "1.0", "x~id", "~"])
def test_what_is_no_place(text_: str) -> None:
    with pytest.raises(ValueError, match=r"place|float"):
        Place.read(text_)


@pytest.mark.parametrize("at", [0.1 + 0.2, 1796073741.123456, 1e-300])
def test_a_place_as_text(at: float) -> None:
    assert Place.read(str(Place(at, "a~b"))) == Place(at, "a~b")


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (Wanted(), "decisions_by_time"),
        (Wanted(since=1.0, until=2.0), "decisions_by_time"),
        (Wanted(tenant="t"), "decisions_by_tenant"),
        (Wanted(key_name="k"), "decisions_by_key"),
        (Wanted(model="m"), "decisions_by_model"),
        (Wanted(policy="p"), "decisions_by_policy"),
        (Wanted(outcome="ok"), "decisions_by_outcome"),
        (Wanted(session="s"), "decisions_by_session"),
        (Wanted(tenant="t", since=1.0), "decisions_by_tenant"),
    ],
)
async def test_an_index_gives_a_page_in_order(asked: Database, wanted: Wanted, index: str) -> None:
    """No row is read that is not answered, and nothing is sorted: a page costs the same whatever the table holds."""
    query = queries.page_query(wanted, Place(1.5, "x"), 50)

    def plan(connection: Any) -> str:
        sql = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
        if connection.dialect.name == "sqlite":
            return "\n".join(row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {sql}")))
        for setting in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):  # what it would do with a large table
            connection.execute(text(f"SET LOCAL {setting} = off"))
        return "\n".join(row[0] for row in connection.execute(text(f"EXPLAIN {sql}")))

    told = await asked.run(plan)
    assert f"INDEX {index} " in told or f"Index Scan Backward using {index} " in told, told
    assert "(created,id)<" in told or "Index Cond: " in told
    assert "Filter" not in told and "TEMP B-TREE" not in told and "Sort" not in told


async def test_of_several_things_sqlite_looks_for_the_rarest(database: File) -> None:
    """It cannot know which that is, and would read half a table where a few rows would do. PostgreSQL has statistics."""
    fill(
        stored.SqlitePlace(database),
        *(decision(f"a{n}", created=1.0, tenant="common", outcome="ok", policy="rare") for n in range(3)),
        *(decision(f"b{n}", created=2.0, tenant="rare", outcome="ok", policy="none") for n in range(4)),
        *(decision(f"c{n}", created=3.0, tenant="common", outcome="ok", policy="none") for n in range(20)),
    )
    asked = Database(SqliteUrl(database))
    for wanted, index in (
        (Wanted(tenant="rare", outcome="ok"), "decisions_by_tenant"),
        (Wanted(tenant="common", policy="rare"), "decisions_by_policy"),
        (Wanted(tenant="common", policy="rare", until=1.0), "decisions_by_tenant"),
        (Wanted(tenant="common", outcome="nothing"), "decisions_by_outcome"),
    ):

        def plan(connection: Any, wanted: Wanted = wanted) -> str:
            query = queries.page_query(wanted, None, 50, queries.rarest(connection, wanted))
            sql = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            return "\n".join(row[3] for row in connection.execute(text(f"EXPLAIN QUERY PLAN {sql}")))

        assert f"SEARCH decisions USING INDEX {index} (" in await asked.read(plan), wanted
    await asked.close()


async def test_one_decision_with_all_that_belongs_to_it(asked: Database, place: stored.Place) -> None:
    fill(
        place,
        decision("a", tenant="t"),
        decision("b"),
        *(item("calls", decision_id=id_, n=n) for id_ in "ba" for n in (2, 0, 1)),
        item("outcomes", decision_id="a", metric="quality", source="judge"),
        item("outcomes", decision_id="a", metric="cost", source="judge"),
        item("feedback", id="f1", decision_id="a", created=2.0),
        item("feedback", id="f2", decision_id="a", created=1.0),
        item("feedback", id="f3", decision_id="b"),
        item("contents", decision_id="a", prompt="[]", answer=None),
    )
    found = await asked.read(lambda connection: queries.decision(connection, "a"))
    assert found is not None
    assert found.decision == place.rows()[0]
    assert [(call["decision_id"], call["n"]) for call in found.calls] == [("a", 0), ("a", 1), ("a", 2)]
    assert [(each["metric"], each["source"]) for each in found.outcomes] == [("cost", "judge"), ("quality", "judge"), ("x", "feedback")]
    assert [said["id"] for said in found.feedback] == ["f2", "f1"]
    assert await asked.read(lambda connection: queries.decision(connection, "c")) is None
    contents = await asked.read(lambda connection: queries.contents(connection, "a"))
    assert contents is not None
    assert (contents["prompt"], contents["answer"]) == ("[]", None)
    assert await asked.read(lambda connection: queries.contents(connection, "b")) is None


async def test_another_tenant_s_decision_is_none(asked: Database, place: stored.Place) -> None:
    fill(place, decision("a", tenant="t"))
    assert await asked.read(lambda connection: queries.decision(connection, "a", "u")) is None
    assert await asked.read(lambda connection: queries.decision(connection, "a", "t")) is not None


async def test_of_two_outcomes_the_newer_stays(asked: Database, place: stored.Place) -> None:
    """Whichever comes first, and however often."""
    older, newer = Outcome("a", "quality", "judge", 0.25, 1.0), Outcome("a", "quality", "judge", 0.75, 2.0, 0.5)
    beside = Outcome("a", "quality", "feedback", 1.0, 1.0)
    told = [
        await asked.run(lambda connection, outcome=outcome: queries.put_outcome(connection, outcome))
        for outcome in (older, beside, newer, older, newer)
    ]
    assert told == [True, True, True, False, True]
    assert sorted((row["source"], row["value"], row["labelling_probability"], row["created"]) for row in place.rows("outcomes")) == [
        ("feedback", 1.0, 1.0, 1.0),
        ("judge", 0.75, 0.5, 2.0),
    ]
    assert [(row["decision_id"], row["metric"]) for row in place.rows("to_learn")] == [("a", "quality")]
