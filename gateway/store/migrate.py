"""`trilemma migrate`: brings the database to the schema of this version.

Safe at any time and from several processes at once: they take turns, and who comes second finds nothing to do. The gateway runs this by
itself, in a process of its own, when its database is behind.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError

from gateway.config.load import load
from gateway.config.problems import ConfigError
from gateway.store import revisions
from gateway.store.urls import database_file

# Seconds that a migration waits for whoever writes; a writer's turn takes milliseconds, another migration's about a second.
BUSY_S = 10.0


class MigrationError(Exception):
    """The database cannot be brought to the schema; why."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """Revisions before (None: an empty database) and after. `after` is unknown here when a newer Trilemma made it, which is left alone."""

    before: str | None
    after: str

    def __str__(self) -> str:
        if self.after not in revisions.known():
            return f"at {self.after}, which is newer than this version of Trilemma; nothing to do"
        return f"at {self.after} already" if self.before == self.after else f"from {self.before or 'nothing'} to {self.after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 the database has the schema (now, or already), 1 it could not be done, 2 there is no usable URL."""
    parser = argparse.ArgumentParser(prog="trilemma migrate", description="Bring the database to the schema of this version.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--config", type=Path, metavar="FILE", help="the database that this configuration names")
    which.add_argument("--url", metavar="URL", help="the database: sqlite:///FILE")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        file = database_file(options.url if options.config is None else load(options.config).config.storage.url)
    except (ConfigError, ValueError) as error:
        return _tell(options.json, 2, {"error": str(error)})
    if file is None:
        return _tell(options.json, 2, {"error": "there is no database: `storage.url` is empty"})
    try:
        done = migrate(file)
    except MigrationError as error:
        return _tell(options.json, 1, {"error": str(error)})
    return _tell(options.json, 0, {"before": done.before, "after": done.after}, str(done))


def migrate(file: Path) -> Migrated:
    """Migrates a SQLite file, which is made if it is not there (its folder is not). All or nothing. Raises MigrationError."""
    if not file.parent.is_dir():
        raise MigrationError("the folder of the database is not there")
    engine = _engine(file)
    try:
        with engine.begin() as connection:
            return _upgrade(connection)
    except DBAPIError as error:
        raise MigrationError(str(error.orig)) from None
    finally:
        engine.dispose()


def _engine(file: Path) -> Engine:
    # sqlite3 opens no transaction by itself: each begins by taking the write lock, under which the revision is read, and holds the DDL.
    options = {"timeout": BUSY_S, "isolation_level": None}
    engine = create_engine(URL.create("sqlite", database=str(file)), connect_args=options, poolclass=NullPool)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _upgrade(connection: Connection) -> Migrated:
    before = MigrationContext.configure(connection).get_current_revision()
    known = revisions.known()
    if before is not None and before not in known:
        if inspect(connection).has_table("decisions"):
            return Migrated(before, before)
        raise MigrationError(f"the database is at {before} and has no decisions: it belongs to another program")
    config = Config()
    config.set_main_option("script_location", str(revisions.folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return Migrated(before, known[-1])


def _tell(as_json: bool, status: int, facts: Mapping[str, str | None], text: str = "") -> int:
    if as_json:
        sys.stdout.write(json.dumps({"ok": status == 0, **facts}) + "\n")
    elif status == 0:
        sys.stdout.write(f"{text}\n")
    else:
        sys.stderr.write(f"{facts['error']}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
