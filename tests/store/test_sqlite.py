"""What is SQLite's own; what holds of either kind of database stands in test_sinks.py."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.sqlite import SqliteFile
from gateway.store.writer import StoreError
from tests.store.making import decision, item
from tests.support.stored import stored


@pytest.fixture
def sink(database: Path) -> Iterator[SqliteFile]:
    with contextlib.closing(SqliteFile(database)) as sink:
        sink.ready()
        yield sink


def ids(file: Path) -> list[str]:
    return [each["id"] for each in stored(file)]


def test_readers_are_not_in_the_way(sink: SqliteFile, database: Path) -> None:
    """Write-ahead: who reads for long sees what was there, and nobody waits."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM decisions").fetchone() == (0,)
        sink.store([decision("a")])
        assert reader.execute("SELECT count(*) FROM decisions").fetchone() == (0,)


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    file.touch()
    with contextlib.closing(SqliteFile(file)) as sink:
        sink.ready()
        sink.store([decision("a")])
    assert ids(file) == ["a"]


def test_a_file_that_was_taken_away_is_noticed(sink: SqliteFile, database: Path) -> None:
    """Its rows would go where nobody looks for them: a new one is made in its place."""
    sink.store([decision("a")])
    database.unlink()
    sink.ready()
    sink.store([decision("b")])
    assert ids(database) == ["b"]


def test_what_is_deleted_is_overwritten(sink: SqliteFile, database: Path) -> None:
    """Else it could be read from the file for years."""
    sink.store([item("contents", decision_id="0a", prompt="PROMPTCANARY" * 1000, answer=None)])
    sink.close()  # which empties the write-ahead log into the file
    assert b"PROMPTCANARY" in database.read_bytes()
    sink.ready()
    assert sink.expire("contents", "0b", 10) == 1
    sink.close()
    assert b"PROMPTCANARY" not in database.read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere/d.db", "the folder of the database is not there"),
        ("text", "file is not a database"),
        (".", "unable to open database file"),
    ],
)
def test_what_is_no_database_is_said_without_its_path(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but longer than an empty file")
    sink = SqliteFile(tmp_path / name)
    with pytest.raises(StoreError, match=reason) as refused:
        sink.ready()
    assert str(tmp_path) not in str(refused.value)
    with pytest.raises(StoreError, match="not open"):
        sink.store([decision("a")])
