"""The queue and its thread, over a database that does what the test says."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from gateway.store.writer import Row, StoreError, Writer
from tests.support.processes import until


class Database:
    """Takes rows unless `refuses` holds an error; waits while `open` is not set."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []
        self.refuses: Exception | None = None
        self.attempts = 0
        self.closed = False
        self.open = threading.Event()
        self.open.set()

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def ready(self) -> None:
        self.attempts += 1
        if self.refuses is not None:
            raise self.refuses

    def store(self, rows: Sequence[Row]) -> None:
        assert self.open.wait(30)
        if self.refuses is not None:
            raise self.refuses
        self.batches.append(list(rows))

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
        made.append(Writer(database, **{"every_s": 0.001} | settings))
        made[-1].start()
        return made[-1]

    yield make
    database.refuses = None
    database.open.set()
    for each in made:
        each.close()


def rows(count: int, start: int = 0) -> list[Row]:
    return [(f"id-{number}",) for number in range(start, start + count)]


def put(writer: Writer, many: Sequence[Row]) -> None:
    for row in many:
        writer.put(row)


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
    assert running.trouble == "database is locked (5 decisions wait)"
    assert database.rows == []
    database.refuses = None
    until(lambda: running.waiting == 0, "all are stored")
    assert database.rows == rows(5)
    until(lambda: running.trouble is None, "the trouble is over")
    assert [record.getMessage() for record in caplog.records] == [
        "decisions cannot be stored and wait: database is locked",
        "decisions are stored again; 0 have been dropped since the start",
    ], "told once, however often it was tried"


def test_the_queue_is_bounded_and_what_is_dropped_is_counted(database: Database, writer: Make) -> None:
    database.refuses = StoreError("database or disk is full")
    running = writer(limit=3)
    put(running, rows(5))
    until(lambda: running.trouble is not None, "the trouble is noticed")
    assert running.trouble == "database or disk is full (3 decisions wait, 2 were dropped)"
    database.refuses = None
    until(lambda: running.waiting == 0, "all are stored")
    assert database.rows == rows(3), "the oldest are kept"
    assert running.dropped == 2


def test_trouble_shows_before_there_is_a_row(database: Database, writer: Make) -> None:
    database.refuses = StoreError("no such place")
    running = writer()
    until(lambda: running.trouble == "no such place (0 decisions wait)", "it shows")
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
    assert "5 decisions could not be stored and are lost: database or disk is full" in caplog.messages


def test_closing_does_not_wait_for_a_database_that_hangs(database: Database, writer: Make, caplog: pytest.LogCaptureFixture) -> None:
    database.open.clear()
    running = writer()
    put(running, rows(1))
    running.close(within_s=0.1)
    assert "1 decisions could not be stored and are lost: the database did not answer in time" in caplog.messages
