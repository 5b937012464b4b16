from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.record import COLUMNS
from gateway.store.sqlite import SqliteFile
from gateway.store.writer import Row, StoreError
from tests.support.stored import stored


def row(id_: str, **values: str | int | float | None) -> Row:
    """A row with these values, and something for the others."""
    return tuple({**dict.fromkeys(COLUMNS, 1), "id": id_, **values}[column] for column in COLUMNS)


@pytest.fixture
def sink(database: Path) -> Iterator[SqliteFile]:
    with contextlib.closing(SqliteFile(database)) as sink:
        sink.ready()
        yield sink


def ids(file: Path) -> list[str]:
    return [each["id"] for each in stored(file)]


def test_a_row_comes_once(sink: SqliteFile, database: Path) -> None:
    """However often it is stored; the first word stands."""
    sink.store([row("a", tenant="first"), row("b")])
    sink.store([row("a", tenant="second"), row("c")])
    assert ids(database) == ["a", "b", "c"]
    assert stored(database)[0]["tenant"] == "first"


def test_all_or_none(sink: SqliteFile, database: Path) -> None:
    with pytest.raises(StoreError, match=r"NOT NULL .*tenant"):
        sink.store([row("a"), row("b", tenant=None)])
    sink.ready()
    sink.store([row("c")])
    assert ids(database) == ["c"]


def test_readers_are_not_in_the_way(sink: SqliteFile, database: Path) -> None:
    """Write-ahead: who reads for long sees what was there, and nobody waits."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM decisions").fetchone() == (0,)
        sink.store([row("a")])
        assert reader.execute("SELECT count(*) FROM decisions").fetchone() == (0,)


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    file.touch()
    with contextlib.closing(SqliteFile(file)) as sink:
        sink.ready()
        sink.store([row("a")])
    assert ids(file) == ["a"]


def test_a_file_that_was_taken_away_is_noticed(sink: SqliteFile, database: Path) -> None:
    """Its rows would go where nobody looks for them: a new one is made in its place."""
    sink.store([row("a")])
    database.unlink()
    sink.ready()
    sink.store([row("b")])
    assert ids(database) == ["b"]


def test_a_newer_schema_takes_rows(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica is a version ahead and has added a column: there is nothing to migrate."""
    monkeypatch.setattr("gateway.store.sqlite.subprocess.run", lambda *_args, **_options: pytest.fail("it migrates"))
    with contextlib.closing(sqlite3.connect(database)) as newer, newer:
        newer.execute("ALTER TABLE decisions ADD COLUMN mood TEXT")
        newer.execute("UPDATE alembic_version SET version_num = '0999_later'")
    with contextlib.closing(SqliteFile(database)) as other:
        other.ready()
        other.store([row("a")])
    assert stored(database)[0]["mood"] is None


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
        sink.store([row("a")])
