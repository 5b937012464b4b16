"""Fixtures: databases with the schema, of both kinds. A conftest imports those it needs; the root's holds what there is one of."""

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
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `migrated` is, in all folders. (pytest keeps one value of a fixture for each module that imports it.)"""
    file = tmp_path_factory.mktemp("migrated") / "decisions.db"
    migrate(SqliteUrl(file))
    return file


@pytest.fixture(scope="session")
def migrated(migrated_file: Path) -> Path:
    """An empty database with the schema, to copy."""
    return migrated_file


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """What `server` is, in all folders."""
    with running_server() as server:
        server.template = server.create()
        migrate(PostgresUrl(server.url(server.template)))
        yield server


@pytest.fixture(scope="session")
def server(postgres_server: Server) -> Server:
    """A PostgreSQL, whose databases come with the schema."""
    return postgres_server


@pytest.fixture
def database(migrated: Path, tmp_path: Path) -> Path:
    """A database of the test's own, in a folder of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    return Path(shutil.copy(migrated, folder / "decisions.db"))


@pytest.fixture
def decisions(migrated: Path, tmp_path: Path) -> Path:
    """`decisions.db` in the test's folder, with the schema: a gateway makes it in a second or two, which is not what the test is about."""
    return Path(shutil.copy(migrated, tmp_path / "decisions.db"))


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
