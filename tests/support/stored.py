"""Looking into a store's SQLite file from outside."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any


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

    await until_so(enough, f"{count} rows are stored")
    assert len(rows) == count
    return rows


async def until_so(condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    """Asks again and again, while the loop goes on, until it is so; fails with `what` when it never was."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 (another process, or thread, changes it)
                await asyncio.sleep(0.02)
            return
    raise AssertionError(f"not within {within_s:g} s: {what}")
