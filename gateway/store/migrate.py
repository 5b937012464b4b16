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
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from gateway.config.load import load
from gateway.config.problems import ConfigError
from gateway.store import revisions
from gateway.store.engine import Begin, engine, failure
from gateway.store.urls import Location, SqliteUrl, located
from gateway.store.writer import StoreError

# Seconds that a migration waits for whoever writes; a writer's turn takes milliseconds, another migration's about a second.
BUSY_S: Final = 10.0


class MigrationError(StoreError):
    """The database cannot be brought to the schema."""


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
    which.add_argument("--url", metavar="URL", help="the database: sqlite:///FILE or postgresql://...; - reads it from standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        location = located(_url(options.url, options.config))
    except (ConfigError, ValueError) as error:
        return _tell(options.json, 2, {"error": str(error)})
    if location is None:
        return _tell(options.json, 2, {"error": "there is no database: `storage.url` is empty"})
    try:
        done = migrate(location)
    except MigrationError as error:
        return _tell(options.json, 1, {"error": str(error), "detail": error.detail or None})
    return _tell(options.json, 0, {"before": done.before, "after": done.after}, str(done))


def migrate(location: Location) -> Migrated:
    """Migrates a SQLite file, which is made if it is not there (its folder is not), or a PostgreSQL database, which must be there.

    All or nothing. Raises MigrationError.
    """
    if isinstance(location, SqliteUrl) and not location.file.parent.is_dir():
        raise MigrationError("the folder of the database is not there")
    opened = engine(location, busy_s=BUSY_S, create=True)
    try:
        with opened.connect().execution_options(begin=Begin(alone=True)) as connection, connection.begin():
            return _upgrade(connection)
    except DBAPIError as error:
        failed = failure(error)
        raise MigrationError(str(failed), failed.detail) from None
    finally:
        opened.dispose()


def _url(url: str | None, config: Path | None) -> str:
    if config is not None:
        return load(config).config.storage.url
    return sys.stdin.read().strip() if url == "-" else url or ""


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
        sys.stderr.write("".join(f"{fact}\n" for fact in (facts.get("detail"), facts["error"]) if fact))
    return status


if __name__ == "__main__":
    sys.exit(main())
