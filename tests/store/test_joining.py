"""What callers say of decisions becomes their outcomes, of either kind of database."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from gateway.store.columns import first_id
from gateway.store.joining import GRACE_S, Orphans
from gateway.store.writer import Item, Sink, StoreError
from tests.store.making import decision, item
from tests.support.stored import Place

NOW = time.time()
ID = f"{first_id(NOW)}a"
OLD = f"{first_id(NOW - GRACE_S - 60)}a"


@pytest.fixture
def sink(place: Place) -> Iterator[Sink]:
    with contextlib.closing(place.sink()) as sink:
        sink.ready()
        yield sink


def said(id_: str, value: float | None, key: str = "k", at: float = NOW, decision_id: str = ID, weight: float = 1.0) -> Item:
    """Feedback on quality."""
    values = {"decision_id": decision_id, "metric": "quality", "value": value, "key_name": key, "weight": weight, "created": at}
    return item("feedback", tenant="t", id=id_, **values)


def outcomes(place: Place) -> list[tuple[str, str, str, float]]:
    return [(row["decision_id"], row["metric"], row["source"], row["value"]) for row in place.rows("outcomes")]


@pytest.mark.parametrize("first", ["feedback", "decision"])
def test_either_may_come_first(sink: Sink, place: Place, first: str) -> None:
    words = [said("f1", 1.0)]
    sink.store(words if first == "feedback" else [decision(ID)])
    sink.store([decision(ID)] if first == "feedback" else words)
    assert outcomes(place) == [(ID, "quality", "feedback", 1.0)]
    (row,) = place.rows("outcomes")
    assert row["labelling_probability"] == 1.0
    assert row["created"] == pytest.approx(NOW)


def test_the_same_feedback_counts_once(sink: Sink, place: Place) -> None:
    """However often it is stored, in one batch or several; its first word stands."""
    sink.store([said("f1", 1.0), said("f1", 0.0)])
    sink.store([said("f1", 0.0, at=NOW + 1)])
    assert outcomes(place) == [(ID, "quality", "feedback", 1.0)]
    assert len(place.rows("feedback")) == 1


def test_of_a_key_the_newest_word_counts_and_of_several_keys_the_mean(sink: Sink, place: Place) -> None:
    sink.store([said("f1", 1.0), said("f2", 0.0, at=NOW + 1)])
    assert outcomes(place)[0][3] == 0.0
    sink.store([said("f0", 1.0, at=NOW - 1)])  # came late: the newer word stands
    assert outcomes(place)[0][3] == 0.0
    sink.store([said("g1", 1.0, key="other"), said("h1", 1.0, key="third")])
    assert outcomes(place)[0][3] == pytest.approx(2 / 3)


def test_weights(sink: Sink, place: Place) -> None:
    sink.store([said("f1", 1.0, weight=3.0), said("g1", 0.0, key="other"), said("h1", 0.0, key="third", weight=0.0)])
    assert outcomes(place)[0][3] == pytest.approx(3 / 4)


def test_nothing_that_counts_makes_no_outcome(sink: Sink, place: Place) -> None:
    sink.store([said("f1", None), said("g1", 1.0, key="other", weight=0.0)])
    assert outcomes(place) == []
    assert len(place.rows("feedback")) == 2


def test_what_others_found_stays(sink: Sink, place: Place) -> None:
    """A judge's outcome of the same metric is another one."""
    sink.store([item("outcomes", decision_id=ID, metric="quality", source="judge", value=0.2), said("f1", 1.0)])
    assert sorted(outcomes(place)) == [(ID, "quality", "feedback", 1.0), (ID, "quality", "judge", 0.2)]


def test_several_processes_at_once(place: Place) -> None:
    """Each stores another key's word on the same decisions: every word counts."""
    ids = [f"{first_id(NOW)}{n}" for n in range(20)]
    failed: list[BaseException] = []

    def stores(key: str, value: float) -> None:
        try:
            with contextlib.closing(place.sink()) as sink:
                sink.ready()
                for id_ in ids:
                    sink.store([said(f"{key}-{id_}", value, key=key, decision_id=id_)])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=stores, args=(f"k{n}", float(n % 2))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {row["value"] for row in place.rows("outcomes")} == {0.5}
    assert len(place.rows("outcomes")) == len(ids)


def test_what_is_said_of_a_decision_long_gone_is_not_kept(sink: Sink, place: Place) -> None:
    sink.store([said("f1", 1.0, decision_id=OLD), said("f2", 1.0, decision_id=ID)])
    assert [row["id"] for row in place.rows("feedback")] == ["f2"]
    assert [row[0] for row in outcomes(place)] == [ID]


def test_what_is_said_of_an_old_decision_that_is_there_is_kept(sink: Sink, place: Place) -> None:
    sink.store([decision(OLD)])
    sink.store([said("f1", 0.5, decision_id=OLD)])
    assert outcomes(place) == [(OLD, "quality", "feedback", 0.5)]


def test_what_was_said_of_decisions_that_never_came_is_swept_out(sink: Sink, place: Place) -> None:
    """A batch at a time, once they cannot come any more."""
    young = [f"{first_id(NOW)}{n}" for n in range(5)]
    sink.store([said(id_, 1.0, decision_id=id_) for id_ in young] + [decision(young[1])])
    now = [NOW]
    orphans = Orphans(batch=2, every_s=600, clock=lambda: now[0])
    orphans.step(sink.sweep)
    assert len(place.rows("feedback")) == 5
    now[0] = NOW + GRACE_S + 1  # and it is time to look again
    left = []
    for _ in range(4):
        orphans.step(sink.sweep)
        left.append(len(place.rows("feedback")))
    assert left == [4, 2, 1, 1]
    assert [row["decision_id"] for row in place.rows("feedback")] == [young[1]]
    assert [row[0] for row in outcomes(place)] == [young[1]]
    assert to_learn(place) == [(young[1], "quality")]


def to_learn(place: Place) -> list[tuple[str, str]]:
    return sorted((row["decision_id"], row["metric"]) for row in place.rows("to_learn"))


def test_what_is_said_is_to_be_learnt(sink: Sink, place: Place) -> None:
    """Once for each decision and metric, by whichever source, whether the decision is there or not; what makes no outcome is not."""
    found = item("outcomes", decision_id="b", metric="quality", source="judge", value=0.2)
    sink.store([said("f1", 1.0), found, said("f2", None, decision_id="c"), said("f3", 1.0, decision_id=OLD)])
    assert to_learn(place) == [(ID, "quality"), ("b", "quality")]
    sink.store([decision(ID), said("f1", 1.0)])
    assert to_learn(place) == [(ID, "quality"), ("b", "quality")]


def test_what_is_said_again_is_to_be_learnt_at_once(sink: Sink, place: Place) -> None:
    """Though what was said before had to wait for the decision."""
    sink.store([said("f1", 1.0)])
    place.execute("UPDATE to_learn SET due = 1e12, created = 0")
    sink.store([said("f2", 0.5, at=NOW + 1)])
    (row,) = place.rows("to_learn")
    assert row["due"] == 0
    assert row["created"] >= NOW


def test_an_outcome_and_what_is_to_be_learnt_of_it_are_stored_together(sink: Sink, place: Place) -> None:
    """Or neither: where the one cannot be stored, the other waits with it."""
    place.execute("ALTER TABLE to_learn RENAME TO gone")
    with pytest.raises(StoreError):
        sink.store([said("f1", 1.0)])
    assert outcomes(place) == []


def test_a_sweep_of_nothing(sink: Sink, place: Place) -> None:
    assert sink.sweep("", "0f", 10) == "0f"
