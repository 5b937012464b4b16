from __future__ import annotations

from typing import Any

import pytest

from gateway.access.keys import Principal
from gateway.serving import feedback
from gateway.serving.call import Receipt
from gateway.serving.feedback import FeedbackBox, Said, said
from gateway.store.columns import COLUMNS
from gateway.wire.errors import ApiError

SHOP = Principal("shop", "t", frozenset(("inference",)), None)
OTHER = Principal("other", "t", frozenset(("inference",)), None)
WORD = Said("d1", "quality", 1.0)


class Rows:
    """Stands for the writer's queue: there is room for so many rows."""

    def __init__(self, room: int = 1_000) -> None:
        self.room = room
        self.kept: list[Any] = []

    def put(self, table: str, row: Any) -> bool:
        assert table == "feedback"
        if len(self.kept) >= self.room:
            return False
        self.kept.append(dict(zip(COLUMNS[table], row, strict=True)))
        return True


def test_what_is_taken_is_a_row() -> None:
    rows = Rows()
    taken = FeedbackBox(rows.put, now=lambda: 7.0).take(SHOP, Said("d1", "quality", 0.0, "failed", "mine"), None)
    assert (taken.id, taken.status) == ("mine", "pending")
    assert rows.kept == [
        {
            "tenant": "t",
            "id": "mine",
            "decision_id": "d1",
            "metric": "quality",
            "value": 0.0,
            "verdict": "failed",
            "key_name": "shop",
            "weight": 1.0,
            "created": 7.0,
        }
    ]


def test_joined_where_the_request_has_ended_here() -> None:
    box = FeedbackBox(Rows().put)
    box.ended(Receipt("r", "d1", 0.0))
    assert box.take(SHOP, WORD, None).status == "joined"
    assert box.take(SHOP, Said("d2", "quality", 1.0), None).status == "pending"


def test_ids_of_our_own_never_repeat() -> None:
    box = FeedbackBox(Rows().put)
    assert len({box.take(SHOP, WORD, None).id for _ in range(100)}) == 100


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last things at least so many are known."""
    monkeypatch.setattr(feedback, "_REMEMBERED", 10)
    box = FeedbackBox(Rows().put)
    for n in range(100):
        box.ended(Receipt("r", f"d{n}", 0.0))
    known = [n for n in range(100) if box.take(SHOP, Said(f"d{n}", "quality", 1.0), None).status == "joined"]
    assert known == list(range(known[0], 100))
    assert 10 <= len(known) <= 20


def test_no_room_is_said_and_can_be_tried_again() -> None:
    """It is no duplicate then, and has not been counted."""
    rows = Rows(room=0)
    box = FeedbackBox(rows.put)
    word = Said("d1", "quality", 1.0, None, "mine")
    with pytest.raises(ApiError) as refused:
        box.take(SHOP, word, 1)
    assert (refused.value.status, refused.value.code) == (503, "gateway_storage_unavailable")
    assert {name for name, _ in refused.value.headers} == {b"retry-after", b"retry-after-ms"}
    rows.room = 1
    assert box.take(SHOP, word, 1).status == "pending"


def test_an_hour() -> None:
    clock = [100.0]
    box = FeedbackBox(Rows().put, clock=lambda: clock[0])
    box.take(SHOP, WORD, 2)
    clock[0] += 3_599
    box.take(SHOP, WORD, 2)
    with pytest.raises(ApiError) as refused:
        box.take(SHOP, WORD, 2)
    assert dict(refused.value.headers)[b"retry-after"] == b"1"
    box.take(OTHER, WORD, 2)
    box.take(SHOP, WORD, 3)  # a new configuration allows more
    clock[0] += 1
    box.take(SHOP, WORD, 2)


def test_a_verdict_is_a_value_of_quality() -> None:
    assert said({"decision_id": "d", "verdict": "overprovisioned"}) == Said("d", "quality", 1.0, "overprovisioned")
    assert said({"decision_id": "d", "verdict": "underpowered", "feedback_id": "a/b"}) == Said("d", "quality", 0.0, "underpowered", "a/b")


def test_nulls_are_not_given() -> None:
    fields = {"decision_id": "d", "metric": "m", "value": True, "verdict": None, "feedback_id": None}
    assert said(fields) == Said("d", "m", 1.0)
