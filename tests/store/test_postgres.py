"""What is PostgreSQL's own; what holds of either kind of database stands in test_sinks.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gateway.store.migrate import migrate
from gateway.store.postgres import PostgresDatabase
from gateway.store.urls import PostgresUrl
from gateway.store.writer import RowsRefused, StoreError
from tests.store.making import decision
from tests.support.postgres import Server, running_server
from tests.support.stored import PostgresPlace


@pytest.fixture
def sink(postgres: PostgresPlace) -> Iterator[PostgresDatabase]:
    with contextlib.closing(PostgresDatabase(postgres.location)) as sink:
        sink.ready()
        yield sink


def ids(place: PostgresPlace) -> list[str]:
    return [each["id"] for each in place.rows()]


def test_an_empty_database_gets_its_schema(server: Server) -> None:
    place = PostgresPlace(server.url(name := server.create(empty=True)))
    with contextlib.closing(PostgresDatabase(place.location)) as sink:
        sink.ready()
        sink.store([decision("a")])
    assert ids(place) == ["a"]
    server.drop(name)


def test_a_server_that_stops_is_noticed_without_a_row(sink: PostgresDatabase, postgres: PostgresPlace) -> None:
    """And a row that was under way comes once."""
    sink.store([decision("a")])
    postgres.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'trilemma'")
    with pytest.raises(StoreError) as broken:
        sink.store([decision("b")])
    assert not isinstance(broken.value, RowsRefused)
    sink.ready()
    postgres.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'trilemma'")
    sink.ready()
    sink.store([decision("a"), decision("b")])
    assert ids(postgres) == ["a", "b"]


def test_two_replicas_store_the_same_rows(sink: PostgresDatabase, postgres: PostgresPlace) -> None:
    """One that was thought to have failed, say."""
    with contextlib.closing(PostgresDatabase(postgres.location)) as other:
        other.ready()
        for each in (sink, other):
            each.store([decision("a"), decision("b")])
    assert ids(postgres) == ["a", "b"]


def test_replicas_tidy_up_beside_each_other(sink: PostgresDatabase, postgres: PostgresPlace) -> None:
    """What one deletes the other passes over, and does not wait for."""
    sink.store([decision(f"0{letter}") for letter in "abcd"])
    with contextlib.closing(psycopg.connect(postgres.url)) as other:
        other.execute("DELETE FROM decisions WHERE id < '0c'")
        assert sink.expire("decisions", "1", 10) == 2
        other.rollback()
    assert ids(postgres) == ["0a", "0b"]


def test_a_character_that_postgresql_does_not_take(sink: PostgresDatabase, postgres: PostgresPlace) -> None:
    with pytest.raises(RowsRefused) as refused:
        sink.store([decision("a", tenant="SECRET\0")])
    assert "SECRET" not in str(refused.value)
    sink.store([decision("b")])
    assert ids(postgres) == ["b"]


def test_a_value_that_no_index_holds(sink: PostgresDatabase, postgres: PostgresPlace) -> None:
    long = "".join(f"{n:x}" for n in range(4000))
    with pytest.raises(RowsRefused):
        sink.store([decision("a", tenant=long)])
    sink.store([decision("b")])
    assert ids(postgres) == ["b"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("ALTER TABLE decisions RENAME TO elsewhere", "the database lacks the schema, or what was asked is no question"),
        ("ALTER DATABASE {name} SET default_transaction_read_only = on", "the database may only be read"),
        ("REVOKE INSERT ON decisions FROM someone", "the database does not allow this login to do so"),
    ],
)
def test_reasons(server: Server, postgres: PostgresPlace, sql: str, reason: str) -> None:
    """In words of our own, without the server's: those hold names and values."""
    name = postgres.url.partition("/")[2].partition("@/")[2].partition("?")[0]
    postgres.execute("CREATE ROLE someone LOGIN")
    try:
        postgres.execute("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO someone")
        postgres.execute(sql.format(name=name))
        with contextlib.closing(PostgresDatabase(PostgresUrl(postgres.url.replace("postgres@", "someone@")))) as sink:
            sink.ready()
            with pytest.raises(StoreError) as failed:
                sink.store([decision("a")])
        assert str(failed.value) == reason
        assert not isinstance(failed.value, RowsRefused)
    finally:
        server.drop(server.create(empty=True))
        with contextlib.closing(psycopg.connect(postgres.url, autocommit=True, options="-c default_transaction_read_only=off")) as admin:
            admin.execute("DROP OWNED BY someone")
            admin.execute("DROP ROLE someone")


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """The reason is for anybody, where it looked for the log alone, and the password for nobody."""
    sink = PostgresDatabase(PostgresUrl(f"postgresql://user:hunter2@/trilemma?host={tmp_path}"))
    with pytest.raises(StoreError, match=r"^the database cannot be reached$") as failed:
        sink.ready()
    assert str(tmp_path) in failed.value.detail
    assert "hunter2" not in failed.value.detail


def test_a_server_that_stops_and_starts_again() -> None:
    with running_server() as server:
        place = PostgresPlace(server.url(server.create()))
        migrate(place.location)
        with contextlib.closing(PostgresDatabase(place.location)) as sink:
            sink.ready()
            sink.store([decision("a")])
            server.stop()
            with pytest.raises(StoreError, match="the database cannot be reached"):
                sink.ready()
            server.start()
            sink.ready()
            sink.store([decision("b")])
        assert ids(place) == ["a", "b"]
