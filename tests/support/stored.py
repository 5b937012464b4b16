"""Looking into a store's SQLite file from outside."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from tests.support.waiting import until


def stored(file: Path) -> list[dict[str, Any]]:
    """The rows of `decisions`, in the order in which they were stored; none when there is no such table yet."""
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute("SELECT * FROM decisions ORDER BY rowid")]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return []


async def until_stored(file: Path, count: int) -> list[dict[str, Any]]:
    """The rows, once there are that many; fails when there are more, or never so many."""
    rows: list[dict[str, Any]] = []

    def enough() -> bool:
        rows[:] = stored(file) if file.exists() else []
        return len(rows) >= count

    await until(enough, f"{count} rows are stored", 20)
    assert len(rows) == count
    return rows
