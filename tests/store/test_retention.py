from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from gateway.store.columns import DECISION, first_id
from gateway.store.retention import Retention

DAY = 86_400.0
NOW = 1_000 * DAY


class Deleting:
    """Says of each table how many rows are too old, and notes what is asked for."""

    def __init__(self, old: Mapping[str, int]) -> None:
        self.old = dict(old)
        self.asked: list[tuple[str, str]] = []

    def __call__(self, table: str, before: str, most: int) -> int:
        self.asked.append((table, before))
        gone = min(self.old.get(table, 0), most)
        self.old[table] = self.old.get(table, 0) - gone
        return gone


def limits(keep_days: Mapping[str, float]) -> dict[str, str]:
    """What one step asks for."""
    deleting = Deleting({})
    Retention(keep_days, clock=lambda: NOW).step(deleting)
    assert len(dict(deleting.asked)) == len(deleting.asked)
    return dict(deleting.asked)


@pytest.mark.parametrize(
    ("keep_days", "days"),
    [
        ({}, {}),
        ({"contents": 7.0}, {"contents": 7}),
        ({"decisions": 30.0}, dict.fromkeys(DECISION, 30)),
        ({"decisions": 30.0, "contents": 7.0}, {**dict.fromkeys(DECISION, 30), "contents": 7}),
        ({"decisions": 30.0, "contents": 90.0}, dict.fromkeys(DECISION, 30)),
        ({"decisions": 0.5}, dict.fromkeys(DECISION, 0.5)),
    ],
)
def test_how_long_each_table_is_kept(keep_days: Mapping[str, float], days: Mapping[str, float]) -> None:
    """What belongs to a decision goes with it, if not sooner."""
    assert limits(keep_days) == {table: first_id(NOW - kept * DAY) for table, kept in days.items()}


@pytest.fixture
def clock() -> list[float]:
    return [NOW]


@pytest.fixture
def retention(clock: list[float]) -> Retention:
    return Retention({"decisions": 10.0}, batch=100, every_s=60, clock=lambda: clock[0])


def steps(retention: Retention, deleting: Callable[[str, str, int], int], count: int) -> None:
    for _ in range(count):
        retention.step(deleting)


def test_it_goes_on_until_nothing_is_left(retention: Retention) -> None:
    deleting = Deleting({"decisions": 250, "calls": 100})
    steps(retention, deleting, 10)
    assert set(deleting.old.values()) == {0}
    assert len(deleting.asked) == 3 * len(DECISION), "100, 100, 50 of the longest; then it rests"


def test_then_it_rests(retention: Retention, clock: list[float]) -> None:
    deleting = Deleting({})
    steps(retention, deleting, 3)
    clock[0] += 59.9
    steps(retention, deleting, 3)
    assert len(deleting.asked) == len(DECISION)
    clock[0] += 0.1
    steps(retention, deleting, 3)
    assert len(deleting.asked) == 2 * len(DECISION)
    assert deleting.asked[-1][1] == first_id(NOW + 60 - 10 * DAY)
