"""The queue and its thread, over a database that does what the test says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.store.retention import Retention
from gateway.store.writer import Item, RowsRefused, StoreError, Writer
from tests.support.processes import until


class Database:
    """Takes rows unless `refuses` holds an error, but for ever refuses those that are `poisoned`; waits while `open` is not set."""

    def __init__(self) -> None:
        self.batches: list[list[Item]] = []
        self.poisoned: set[str] = set()
        self.expired: list[tuple[str, str, int]] = []
        self.expires: list[int | Exception] = []
        self.refuses: Exception | None = None
        self.attempts = 0
        self.closed = False
        self.open = threading.Event()
        self.open.set()

    @property
    def rows(self) -> list[Item]:
        return [row for batch in self.batches for row in batch]

    def ready(self) -> None:
        self.attempts += 1
        if self.refuses is not None:
            raise self.refuses

    def store(self, items: Sequence[Item]) -> None:
        assert self.open.wait(30)
        if self.refuses is not None:
            raise self.refuses
        if any(row[0] in self.poisoned for _, row, _ in items):
            raise RowsRefused("NOT NULL constraint failed")
        self.batches.append(list(items))

    def expire(self, table: str, before: str, most: int) -> int:
        self.expired.append((table, before, most))
        found = self.expires.pop(0) if self.expires else 0
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.closed = True


Make = Callable[..., Writer]


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def writer(database: Database) -> Iterator[Make]:
    made: list[Writer] = []

    def make(**settings: Any) -> Writer:
        made.append(Writer(database, **({"every_s": 0.001} | settings)))
        made[-1].start()
        return made[-1]

    yield make
    database.refuses = None
    database.open.set()
    for each in made:
        each.close()


def rows(count: int, start: int = 0) -> list[Item]:
    return [("decisions", (f"id-{number}",), 0) for number in range(start, start + count)]


def put(writer: Writer, many: Sequence[Item]) -> None:
    for item in many:
        writer.put(*item)


def test_rows_arrive_in_order_and_in_batches(database: Database, writer: Make) -> None:
    running = writer(batch=10, every_s=60)
    until(lambda: database.attempts == 1, "the database is opened before there is a row")
    put(running, rows(25))
    assert running.waiting == 25
    running.close()
    assert [len(batch) for batch in database.batches] == [10, 10, 5]
    assert database.rows == rows(25)
    assert running.waiting == 0
    assert database.closed


def test_they_arrive_without_being_asked_for(database: Database, writer: Make) -> None:
    put(writer(), rows(3))
    until(lambda: database.rows == rows(3), "the rows are stored")


def test_a_database_that_hangs_keeps_nobody_waiting(database: Database, writer: Make) -> None:
    """Rows count as waiting until they are stored, and no row is taken twice."""
    database.open.clear()
    running = writer()
    put(running, rows(5))
    put(running, rows(5, start=5))
    assert running.waiting == 10
    database.open.set()
    until(lambda: running.waiting == 0, "all are stored")
    assert database.rows == rows(10)


def test_nothing_is_lost_or_doubled_when_the_database_comes_back(
    database: Database, writer: Make, caplog: pytest.LogCaptureFixture
) -> None:
    database.refuses = StoreError("database is locked")
    running = writer(batch=2)
    put(running, rows(5))
    until(lambda: database.attempts >= 3, "it is tried again")
    assert running.trouble == "database is locked (5 rows wait)"
    assert database.rows == []
    database.refuses = None
    until(lambda: running.waiting == 0, "all are stored")
    assert database.rows == rows(5)
    until(lambda: running.trouble is None, "the trouble is over")
    assert [record.getMessage() for record in caplog.records] == [
        "rows cannot be stored and wait: database is locked",
        "rows are stored again; 0 have been dropped since the start",
    ], "told once, however often it was tried"


def test_the_queue_is_bounded_and_what_is_dropped_is_counted(database: Database, writer: Make) -> None:
    database.refuses = StoreError("database or disk is full")
    running = writer(limit=3)
    put(running, rows(5))
    until(lambda: running.trouble is not None, "the trouble is noticed")
    assert running.trouble == "database or disk is full (3 rows wait, 2 were dropped)"
    database.refuses = None
    until(lambda: running.waiting == 0, "all are stored")
    assert database.rows == rows(3), "the oldest are kept"
    assert running.dropped == 2


def test_trouble_shows_before_there_is_a_row(database: Database, writer: Make) -> None:
    database.refuses = StoreError("no such place")
    running = writer()
    until(lambda: running.trouble == "no such place (0 rows wait)", "it shows")
    database.refuses = None
    until(lambda: running.trouble is None, "and that it is over, too")


def test_a_fault_of_our_own_does_not_end_the_thread(database: Database, writer: Make, caplog: pytest.LogCaptureFixture) -> None:
    database.refuses = ZeroDivisionError("oops")
    running = writer()
    put(running, rows(1))
    until(lambda: running.trouble is not None, "it shows")
    assert "oops" not in str(running.trouble)
    assert any(record.exc_info and "oops" in str(record.exc_info[1]) for record in caplog.records)
    database.refuses = None
    until(lambda: database.rows == rows(1), "the row is stored all the same")


def test_closing_waits_for_a_database_that_comes_back(database: Database, writer: Make) -> None:
    database.refuses = StoreError("database is locked")
    running = writer()
    put(running, rows(5))
    before = database.attempts
    closing = threading.Thread(target=running.close)
    closing.start()
    until(lambda: database.attempts > before + 2, "it is tried while closing")
    database.refuses = None
    closing.join(30)
    assert database.rows == rows(5)


def test_closing_ends_in_time_and_says_what_is_lost(database: Database, writer: Make, caplog: pytest.LogCaptureFixture) -> None:
    database.refuses = StoreError("database or disk is full")
    running = writer()
    put(running, rows(5))
    running.close(within_s=0.1)
    assert database.rows == []
    assert caplog.records[-1].levelno == logging.ERROR
    assert "5 rows could not be stored and are lost: database or disk is full" in caplog.messages


def test_closing_does_not_wait_for_a_database_that_hangs(database: Database, writer: Make, caplog: pytest.LogCaptureFixture) -> None:
    database.open.clear()
    running = writer()
    put(running, rows(1))
    running.close(within_s=0.1)
    assert "1 rows could not be stored and are lost: the database did not answer in time" in caplog.messages


def test_more_is_told_to_the_log_than_to_everybody(database: Database, writer: Make, caplog: pytest.LogCaptureFixture) -> None:
    database.refuses = StoreError("the database cannot be reached", 'no host "db.internal"')
    running = writer()
    until(lambda: running.trouble is not None, "the trouble is noticed")
    assert running.trouble == "the database cannot be reached (0 rows wait)"
    assert 'rows cannot be stored and wait: the database cannot be reached (no host "db.internal")' in caplog.messages


def test_a_database_that_hangs_is_in_trouble(database: Database, writer: Make) -> None:
    database.open.clear()
    running = writer(slow_s=0.02)
    put(running, rows(2))
    until(lambda: running.trouble == "the database does not answer (2 rows wait)", "it shows")
    database.open.set()
    until(lambda: running.trouble is None and running.waiting == 0, "the trouble is over")


@pytest.mark.parametrize("poisoned", [{0}, {9}, {4, 5}, set(range(10)), {25}])
def test_a_row_that_is_refused_for_good_keeps_no_other(
    database: Database, writer: Make, caplog: pytest.LogCaptureFixture, poisoned: set[int]
) -> None:
    """It is dropped, counted, and told of once, without what is in it."""
    database.poisoned = {f"id-{number}" for number in poisoned}
    running = writer(batch=10, every_s=60)
    put(running, rows(30))
    running.close()
    assert database.rows == [item for item in rows(30) if item[1][0] not in database.poisoned]
    assert (running.waiting, running.dropped, running.trouble) == (0, len(poisoned), None)
    assert caplog.messages == ["the database refuses a row of `decisions`, which is dropped: NOT NULL constraint failed"]


class Unsteady(Database):
    """Fails when `script` says so; whether it stored before it failed is in the script, too."""

    def __init__(self, script: list[str]) -> None:
        super().__init__()
        self.script = script

    def store(self, items: Sequence[Item]) -> None:
        """See Sink.store."""
        turn = self.script.pop(0) if self.script else "works"
        if turn == "fails":
            raise StoreError("gone")
        super().store(items)
        if turn == "stores and fails":
            raise StoreError("the connection broke as it committed")


@settings(deadline=None)
@given(
    count=st.integers(0, 12),
    poisoned=st.sets(st.integers(0, 11)),
    batch=st.integers(1, 5),
    script=st.lists(st.sampled_from(["works", "fails", "stores and fails"]), max_size=8),
)
def test_whatever_fails_every_good_row_arrives_in_order(count: int, poisoned: set[int], batch: int, script: list[str]) -> None:
    """At least once: a database passes over what it has already. And each bad one is counted once."""
    database = Unsteady(script)
    database.poisoned = {f"id-{number}" for number in poisoned}
    running = Writer(database, batch=batch, every_s=60)
    put(running, rows(count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.store.writer._PAUSE_CLOSING_S", 0.0)
        running.start()
        running.close(30)
    assert list(dict.fromkeys(database.rows)) == [item for item in rows(count) if item[1][0] not in database.poisoned]
    assert (running.waiting, running.dropped) == (0, sum(number < count for number in poisoned))


def test_long_texts_are_bounded_by_their_bytes(database: Database, writer: Make) -> None:
    """They do not keep other rows out; and once they are stored there is room again."""
    database.open.clear()
    running = writer(room=100)
    for number in range(4):
        running.put("contents", (f"long-{number}",), 40)
        running.put("decisions", (f"short-{number}",))
    assert (running.waiting, running.dropped) == (6, 2)
    database.open.set()
    until(lambda: running.waiting == 0, "all are stored")
    running.put("contents", ("long-4",), 100)
    until(lambda: running.waiting == 0, "it is stored")
    names = ["long-0", "short-0", "long-1", "short-1", "short-2", "short-3", "long-4"]
    assert [row[0] for _, row, _ in database.rows] == names


def test_a_transaction_holds_a_few_long_texts_only(database: Database, writer: Make) -> None:
    running = writer(every_s=60)
    until(lambda: database.attempts == 1, "it has begun")
    for number in range(5):
        running.put("contents", (f"long-{number}",), 2 << 20)
    running.close()
    assert [len(batch) for batch in database.batches] == [2, 2, 1]


def test_what_is_too_old_is_deleted_at_leisure(database: Database, writer: Make) -> None:
    """A batch at a time, rows that wait in between, until there is no more of it."""
    database.expires = [7, 7, 3]
    running = writer(retention=Retention({"contents": 1.0}, batch=7, clock=lambda: 86_400.0 + 5.0))
    until(lambda: len(database.expired) == 3, "it is deleted")
    assert set(database.expired) == {("contents", f"{5_000:012x}", 7)}
    put(running, rows(2))
    until(lambda: running.waiting == 0, "rows are stored as ever")
    assert running.trouble is None


def test_nothing_is_deleted_while_rows_wait(database: Database, writer: Make) -> None:
    database.refuses = StoreError("database is locked")
    running = writer(retention=Retention({"contents": 1.0}))
    put(running, rows(2))
    until(lambda: database.attempts > 2, "it is tried again")
    assert database.expired == []
    database.refuses = None
    until(lambda: database.expired != [], "then it is")
    assert running.waiting == 0


@pytest.mark.parametrize("error", [StoreError("database is locked"), ZeroDivisionError("oops")])
def test_deleting_may_fail(database: Database, writer: Make, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """It is tried again, and rows are stored all the same."""
    database.expires = [error]
    running = writer(retention=Retention({"contents": 1.0}))
    until(lambda: len(database.expired) == 2, "it is tried again")
    put(running, rows(2))
    until(lambda: database.rows == rows(2), "rows are stored")
    assert running.trouble is None
    assert len(caplog.records) == 1


def test_a_round_ends_though_rows_go_on_coming(database: Database, writer: Make) -> None:
    """As with a slow database under steady traffic: nobody waits for ever for a round to end, and rows are not stored one at a time."""
    made: list[Writer] = []
    ended: list[int] = []
    store = database.store

    def slow(items: Sequence[Item]) -> None:
        store(items)
        ended.append(made[0].rounds)
        if len(ended) < 20:  # two more come whenever some are stored
            for number in range(2):
                made[0].put("decisions", (f"{len(ended)}-{number}",))

    database.store = slow  # type: ignore[method-assign]
    made.append(writer())
    made[0].put("decisions", ("first",))
    until(lambda: len(database.rows) == 1 + 19 * 2, "all rows are stored")
    assert [each - ended[0] for each in ended] == list(range(20)), "a round for each"
    assert [len(batch) for batch in database.batches] == [1] + [2] * 19
