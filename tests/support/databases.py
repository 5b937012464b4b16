"""Fixtures: databases with the schema, of both kinds. A conftest imports those it needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.migrate import migrate
from gateway.store.urls import PostgresUrl, SqliteUrl
from tests.support.postgres import Server, running_server
from tests.support.stored import Place, PostgresPlace, SqlitePlace


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the schema, to copy."""
    file = tmp_path_factory.mktemp("migrated") / "decisions.db"
    migrate(SqliteUrl(file))
    return file


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL, whose databases come with the schema."""
    with running_server() as server:
        server.template = server.create()
        migrate(PostgresUrl(server.url(server.template)))
        yield server


@pytest.fixture
def database(migrated: Path, tmp_path: Path) -> Path:
    """A database of the test's own, in a folder of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    return Path(shutil.copy(migrated, folder / "decisions.db"))


@pytest.fixture
def postgres(server: Server) -> Iterator[PostgresPlace]:
    """As `database`, of a server."""
    name = server.create()
    yield PostgresPlace(server.url(name))
    server.drop(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    """A database of the test's own, of either kind in turn."""
    if request.param == "sqlite":
        return SqlitePlace(request.getfixturevalue("database"))
    found: Place = request.getfixturevalue("postgres")
    return found
