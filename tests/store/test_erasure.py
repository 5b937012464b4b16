"""After an erasure nothing of a tenant, or of a session, is left anywhere, and everything of the others."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store import erasure, queries
from gateway.store.database import Database
from gateway.store.erasure import erase, erase_some
from gateway.store.writer import Item
from tests.store.making import decision, fill, item
from tests.support.stored import Place

TABLES = ("decisions", "calls", "outcomes", "feedback", "contents")


def told(id_: str, tenant: str, session: str | None) -> list[Item]:
    """A decision, and something of it in every table; what is said of it makes a second outcome."""
    return [
        decision(id_, tenant=tenant, session=session),
        item("calls", decision_id=id_, n=0),
        item("calls", decision_id=id_, n=1),
        item("outcomes", decision_id=id_),
        item("feedback", tenant=tenant, id=f"of-{id_}", decision_id=id_),
        item("contents", decision_id=id_, prompt=f"PROMPT-{tenant}-{session}", answer="ANSWER"),
    ]


@pytest.fixture
def filled(place: Place) -> Place:
    fill(
        place,
        *(each for n in range(12) for each in told(f"a{n}", "shop", f"s{n % 3}")),
        *told("b", "bank", "t1"),
        *told("c", "bank", None),
        item("feedback", tenant="shop", id="early", decision_id="not-yet"),
    )
    return place


def left(place: Place) -> dict[str, int]:
    return {table: len(place.rows(table)) for table in TABLES}


async def test_a_tenant(asked: Database, filled: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches; feedback on what is not there yet goes too."""
    monkeypatch.setattr(erasure, "_BATCH", 5)
    gone = await erase(asked, tenant="shop", pause_s=0)
    assert gone == {"decisions": 12, "calls": 24, "outcomes": 25, "feedback": 13, "contents": 12}
    assert left(filled) == {"decisions": 2, "calls": 4, "outcomes": 4, "feedback": 2, "contents": 2}
    kept = filled.everything()
    assert b"PROMPT-bank" in kept
    assert b"shop" not in kept
    assert await erase(asked, tenant="shop", pause_s=0) == dict.fromkeys(TABLES, 0)


async def test_a_session(asked: Database, filled: Place) -> None:
    gone = await erase(asked, session="s1", pause_s=0)
    assert gone == {"decisions": 4, "calls": 8, "outcomes": 8, "feedback": 4, "contents": 4}
    assert {row["session"] for row in filled.rows()} == {"s0", "s2", "t1", None}
    assert b"PROMPT-shop-s1" not in filled.everything()
    found = await asked.read(lambda connection: queries.decision(connection, "a2"))
    assert found is not None
    assert (len(found.calls), len(found.outcomes), len(found.feedback)) == (2, 2, 1)


async def test_a_session_of_one_tenant(asked: Database, filled: Place) -> None:
    assert await erase(asked, tenant="bank", session="s1", pause_s=0) == dict.fromkeys(TABLES, 0)
    assert (await erase(asked, tenant="shop", session="s1", pause_s=0))["decisions"] == 4
    assert (await erase(asked, tenant="shop", pause_s=0))["decisions"] == 8


async def test_a_batch_at_a_time(asked: Database, filled: Place) -> None:
    """So that nobody waits long for it."""
    batches: list[Any] = [await asked.run(lambda connection: erase_some(connection, "shop", None, 5)) for _ in range(5)]
    assert [batch.get("decisions", 0) for batch in batches] == [5, 5, 2, 0, 0]
    assert batches[3:] == [{"outcomes": 1, "feedback": 1}, {}]


async def test_everything_is_never_meant(asked: Database, filled: Place) -> None:
    with pytest.raises(ValueError, match="a tenant or a session"):
        await erase(asked)
    assert left(filled)["decisions"] == 14
