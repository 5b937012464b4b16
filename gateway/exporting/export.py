"""The tables of the record, one file each, batch by batch: memory does not grow with what is exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from gateway.exporting.jsonl import JsonLines
from gateway.store.database import Database
from gateway.store.export import exported
from gateway.store.queries import Record

Form = Literal["parquet", "jsonl"]
Progress = Callable[[str, int], None]
"""(table, rows so far)"""

TABLES: Final = ("decisions", "calls", "outcomes", "feedback")
CONTENTS: Final = "contents"

_ROWS: Final = 5_000
# A row of contents may hold megabytes.
_ROWS_OF_CONTENTS: Final = 16


class File(Protocol):
    """What rows are written to."""

    def write(self, rows: Sequence[Record]) -> None:
        """Adds the rows."""
        ...

    def close(self) -> None:
        """The file is whole."""
        ...


class NoParquet(Exception):
    """The extra is not installed."""


async def export(
    database: Database, folder: Path, form: Form, tables: Sequence[str], since: float, until: float, progress: Progress
) -> dict[str, int]:
    """Writes the rows of decisions that came in that time (seconds since 1970, `until` not in) into a folder; table -> rows.

    All files take their places at the end, or none does. Raises StoreError, OSError, NoParquet.
    """
    make = _maker(form)
    parts = {table: folder / f".{table}.{form}.part" for table in tables}
    counts = dict.fromkeys(tables, 0)
    try:
        for table, part in parts.items():
            file = make(part, table)
            try:
                rows_at_once = _ROWS_OF_CONTENTS if table == CONTENTS else _ROWS
                async for rows in exported(database, table, since, until, rows_at_once):
                    file.write(rows)
                    counts[table] += len(rows)
                    progress(table, counts[table])
            finally:
                file.close()
        for table, part in parts.items():
            part.replace(folder / f"{table}.{form}")
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return counts


def _maker(form: Form) -> Callable[[Path, str], File]:
    if form == "jsonl":
        return lambda file, _table: JsonLines(file)
    try:
        from gateway.exporting.parquet import Parquet  # an extra
    except ImportError:
        raise NoParquet("Parquet needs the extra `parquet`: pip install 'trilemma[parquet]', or use --format jsonl") from None
    return Parquet
