"""`trilemma export`: decisions, calls, outcomes and feedback as files, one a table.

trilemma export --config FILE --out DIR
trilemma export --config FILE --out DIR --since 2026-11-01 --until 2026-12-01 --format jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gateway.config.load import load
from gateway.config.problems import ConfigError
from gateway.exporting.export import CONTENTS, TABLES, NoParquet, export
from gateway.store.database import Database
from gateway.store.urls import Location, located
from gateway.store.writer import StoreError

# Of one batch.
_WITHIN_S: Final = 60.0


class Failed(Exception):
    """It could not be done. status: of the command."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 it could not be done and no file is changed, 2 the configuration has problems or names no database."""
    args = _parser().parse_args(argv)
    try:
        counts = _exported(args)
    except Failed as failed:
        if args.json:
            print(json.dumps({"ok": False, "error": str(failed)}))
        else:
            print(f"trilemma export: {failed}", file=sys.stderr)
        return failed.status
    files = {table: str(args.out / f"{table}.{args.format}") for table in counts}
    if args.json:
        print(json.dumps({"ok": True, "rows": counts, "files": files}))
    else:
        for table, rows in counts.items():
            print(f"{rows:>10,} {table:10} {files[table]}")
    return 0


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="trilemma export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration that names the database")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go; what has their names there is replaced")
    parser.add_argument(
        "--format", choices=("parquet", "jsonl"), default="parquet", help="default: parquet, which needs the extra `parquet`"
    )
    when = "2026-11-30 (its beginning in UTC), a time with its zone, or seconds since 1970"
    parser.add_argument("--since", type=_time, default=0.0, metavar="WHEN", help=f"only decisions that came then or later: {when}")
    parser.add_argument("--until", type=_time, default=None, metavar="WHEN", help="only those that came before that (default: now)")
    parser.add_argument("--contents", action="store_true", help="prompts and answers, too, where they are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _time(text: str) -> float:
    try:
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
        if len(text) == len("2026-11-30"):
            time = time.replace(tzinfo=UTC)
        if time.tzinfo is not None:
            return time.timestamp()
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError("a day, a time with its zone (2026-11-30T12:00:00Z) or seconds since 1970")


def _exported(args: argparse.Namespace) -> dict[str, int]:
    location = _location(args.config)
    tables = (*TABLES, CONTENTS) if args.contents else TABLES
    until = time.time() if args.until is None else args.until
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        return asyncio.run(_export(location, args, tables, until))
    except StoreError as error:
        raise Failed(f"the database cannot be read: {error}") from None
    except OSError as error:
        raise Failed(f"{args.out} cannot be written: {error.strerror}") from None
    except NoParquet as error:
        raise Failed(str(error)) from None


async def _export(location: Location, args: argparse.Namespace, tables: Sequence[str], until: float) -> dict[str, int]:
    database = Database(location, within_s=_WITHIN_S)
    shown = _Shown(sys.stderr)
    try:
        return await export(database, args.out, args.format, tables, args.since, until, shown.at)
    finally:
        shown.over()
        await database.close()


def _location(config: Path) -> Location:
    try:
        location = located(load(config).config.storage.url)
    except (ConfigError, ValueError) as error:
        raise Failed(str(error), 2) from None
    if location is None:
        raise Failed("there is no database: `storage.url` is empty", 2)
    return location


class _Shown:
    """How far it is, on one line, if somebody looks."""

    def __init__(self, out: Any) -> None:
        self._out = out if out.isatty() else None

    def at(self, table: str, rows: int) -> None:
        if self._out is not None:
            print(f"\r{table}: {rows:,} rows\x1b[K", end="", file=self._out, flush=True)

    def over(self) -> None:
        if self._out is not None:
            print("\r\x1b[K", end="", file=self._out, flush=True)
