"""What the database says of shared limits: drawn by several, in any order, at any time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.access.ledger import COUNTS_S, LAPSE_S, PLACE_S, Line, Round, draw, forget
from gateway.access.limit import Kind
from gateway.access.link import Driver
from gateway.access.link_postgres import Postgres
from gateway.access.link_sqlite import Sqlite
from gateway.store.urls import SqliteUrl
from tests.support.stored import Place, SqlitePlace

NOW = 1_800_000_000.4


@dataclass
class Ledger:
    """A database; with a clock that stands still until it is moved, where it is a file."""

    place: Place
    now: float = NOW
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        location = self.place.location
        if isinstance(location, SqliteUrl):
            self.driver = Sqlite(location, 10, lambda: self.now)
        else:
            self.driver = Postgres(location, 10)

    def draw(self, holder: str, lines: Sequence[Line], asked: Sequence[Sequence[tuple[int, int]]]) -> Round:
        with self.driver.transaction(writes=True) as session:
            return draw(session, holder, lines, asked)


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    found = Ledger(place)
    yield found
    found.driver.close()


@pytest.fixture
def timed(database: Path) -> Iterator[Ledger]:
    found = Ledger(SqlitePlace(database))
    yield found
    found.driver.close()


def line(
    most: int,
    kind: Kind = "requests",
    subject: str = "key dev",
    held: int = 0,
    owed: int = 0,
    back: Mapping[int, int] | None = None,
    spare: bool = False,
) -> Line:
    return Line(subject, kind, most, held, owed, back or {}, spare)


def granted(found: Round) -> list[bool]:
    return [refused is None for refused in found.refused]


def test_requests_get_what_there_is_in_their_order(ledger: Ledger) -> None:
    found = ledger.draw("a", [line(3)], [[(0, 2)], [(0, 2)], [(0, 1)]])
    assert granted(found) == [True, False, True]
    assert found.lines[0].left == 0

    found = ledger.draw("b", [line(3)], [[(0, 1)]])
    assert granted(found) == [False]
    assert found.refused[0] is not None
    assert found.refused[0].used == 3


def test_a_request_gets_all_that_it_needs_or_nothing(ledger: Ledger) -> None:
    lines = [line(10), line(100, "tokens"), line(1, "concurrency")]
    found = ledger.draw("a", lines, [[(0, 1), (1, 101), (2, 1)], [(0, 1), (1, 60), (2, 1)], [(0, 1), (1, 20), (2, 1)]])
    assert granted(found) == [False, True, False]
    assert [each.left for each in found.lines] == [9, 40, 0]
    assert found.refused[0] is not None and found.refused[0].need == 1
    assert found.refused[2] is not None and found.refused[2].need == 2


def test_limits_of_others_and_of_other_kinds_are_apart(ledger: Ledger) -> None:
    ledger.draw("a", [line(1)], [[(0, 1)]])

    assert granted(ledger.draw("a", [line(1, "tokens")], [[(0, 1)]])) == [True]
    assert granted(ledger.draw("a", [line(1, subject="key other")], [[(0, 1)]])) == [True]
    assert granted(ledger.draw("a", [line(1, "concurrency")], [[(0, 1)]])) == [True]


def test_what_is_given_back_is_there_for_anybody(ledger: Ledger) -> None:
    (drawn,) = ledger.draw("a", [line(10)], [[(0, 10)]]).lines
    found = ledger.draw("a", [line(10, back={drawn.second: 4})], [])
    assert found.lines[0].left == 4
    assert granted(ledger.draw("b", [line(10)], [[(0, 5)], [(0, 4)]])) == [False, True]


def test_what_was_used_without_a_draw_counts_even_beyond_the_limit(ledger: Ledger) -> None:
    found = ledger.draw("a", [line(10, owed=25)], [[(0, 1)]])
    assert granted(found) == [False]
    assert found.refused[0] is not None and found.refused[0].used == 25


@pytest.mark.parametrize(("most", "used", "spare"), [(10, 0, 0), (33, 0, 1), (64, 0, 1), (64, 32, 0), (3_200, 0, 99), (3_200, 3_000, 6)])
def test_spare_is_a_small_part_of_what_is_left_and_none_of_the_last(ledger: Ledger, most: int, used: int, spare: int) -> None:
    found = ledger.draw("a", [line(most, owed=used, spare=True)], [[(0, 1)]])

    assert found.lines[0].spare == spare == (most - used - 1) // 32
    assert found.lines[0].left == most - used - 1 - spare


def test_places_are_a_process_own_until_it_says_otherwise(ledger: Ledger) -> None:
    assert granted(ledger.draw("a", [line(3, "concurrency")], [[(0, 1)]] * 2)) == [True, True]
    assert granted(ledger.draw("b", [line(3, "concurrency")], [[(0, 1)]] * 2)) == [True, False]
    ledger.draw("a", [line(3, "concurrency", held=1)], [])
    assert granted(ledger.draw("b", [line(3, "concurrency", held=1)], [[(0, 1)]] * 2)) == [True, False]
    ledger.draw("a", [line(3, "concurrency")], [])
    ledger.draw("b", [line(3, "concurrency")], [])
    assert ledger.place.rows("leases") == []


def test_places_of_a_dead_process_are_free_after_their_time_those_of_a_living_one_are_not(timed: Ledger) -> None:
    place = line(1, "concurrency")
    assert granted(timed.draw("dead", [place], [[(0, 1)]])) == [True]
    timed.now += PLACE_S - 0.1
    assert granted(timed.draw("b", [place], [[(0, 1)]])) == [False]
    timed.now += 0.2
    assert granted(timed.draw("b", [place], [[(0, 1)]])) == [True]
    for _ in range(5):
        timed.now += PLACE_S - 0.1
        timed.draw("b", [line(1, "concurrency", held=1)], [])
        assert granted(timed.draw("c", [place], [[(0, 1)]])) == [False]


def test_rows_that_count_no_more_are_deleted_and_no_others(timed: Ledger) -> None:
    timed.draw("a", [line(10), line(1, "concurrency")], [[(0, 3), (1, 1)]])
    timed.now += 40
    timed.draw("a", [line(10)], [[(0, 2)]])
    timed.now += COUNTS_S - 40

    with timed.driver.transaction(writes=True) as session:
        forget(session)
    assert [row["amount"] for row in timed.place.rows("leases")] == [2]


def test_after_the_wait_there_is_enough_and_not_before(timed: Ledger) -> None:
    timed.draw("a", [line(10)], [[(0, 4)]])
    timed.now += 20.3
    timed.draw("b", [line(10)], [[(0, 5)]])
    timed.now += 10
    (refused,) = timed.draw("b", [line(10)], [[(0, 3)]]).refused
    assert refused is not None

    timed.now += refused.wait_s - 0.01
    assert granted(timed.draw("b", [line(10)], [[(0, 3)]])) == [False]
    timed.now += 0.011
    assert granted(timed.draw("b", [line(10)], [[(0, 3)]])) == [True]


def test_the_reset_is_when_nothing_counts_any_more(timed: Ledger) -> None:
    timed.draw("a", [line(10)], [[(0, 4)]])
    timed.now += 7
    (drawn,) = timed.draw("b", [line(10)], []).lines
    assert drawn.left == 6

    timed.now += drawn.reset_s - 0.001
    assert timed.draw("b", [line(10)], []).lines[0].left == 6
    timed.now += 0.002
    found = timed.draw("b", [line(10)], []).lines[0]
    assert (found.left, found.reset_s) == (10, 0.0)


# Pause, process, what it asks for, how much of it is given back, and when what it drew is used: as a part of the time until it lapses.
Step = tuple[float, str, int, int, float]
steps = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 2), st.sampled_from((0.0, 0.5, 29.7, 58.9, 59.4, 59.9, 60.9))),
        st.sampled_from("abc"),
        st.integers(1, 30),
        st.integers(0, 5),
        st.sampled_from((0.0, 0.5, 0.999)),
    ),
    max_size=25,
)
fresh = itertools.count()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, most=st.sampled_from((1, 20, 70)), spare=st.booleans())
@example(steps=[(0.0, "a", 20, 0, 0.999), (60.9, "b", 20, 0, 0.0)], most=20, spare=False)
def test_in_no_60_seconds_all_together_use_more_than_there_is(timed: Ledger, steps: Sequence[Step], most: int, spare: bool) -> None:
    """Whenever, before it lapses, each uses what it drew; what is given back was not used."""
    subject = f"key {next(fresh)}"
    used: list[tuple[float, int]] = []
    back: dict[str, dict[int, int]] = {"a": {}, "b": {}, "c": {}}
    for pause, holder, amount, unused, use in steps:
        timed.now += pause
        said = line(most, subject=subject, back=back[holder], spare=spare)
        found = timed.draw(holder, [said], [[(0, amount)]])
        (drawn,) = found.lines
        got = drawn.spare + (amount if found.refused[0] is None else 0)
        unused = min(unused, got)
        back[holder] = {drawn.second: unused} if unused else {}
        used.append((timed.now + use * LAPSE_S, got - unused))
    for start, _ in used:
        assert sum(amount for at, amount in used if start <= at < start + 60) <= most


def test_a_transaction_that_fails_changes_nothing(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError), ledger.driver.transaction(writes=True) as session:
        draw(session, "a", [line(1)], [[(0, 1)]])
        raise RuntimeError("in the middle")

    assert granted(ledger.draw("a", [line(1)], [[(0, 1)]])) == [True]
