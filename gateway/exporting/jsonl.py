"""Rows as lines of JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from gateway.store.queries import Record


class JsonLines:
    """A file of one object per row; tags are an object, bytes are base64."""

    def __init__(self, file: Path) -> None:
        self._out = file.open("wb")

    def write(self, rows: Sequence[Record]) -> None:
        """Adds the rows."""
        self._out.writelines(orjson.dumps(_plain(row), default=_text, option=orjson.OPT_APPEND_NEWLINE) for row in rows)

    def close(self) -> None:
        """The file is whole."""
        self._out.close()


def _plain(row: Record) -> dict[str, Any]:
    # SQLAlchemy's names are a kind of str that orjson does not take.
    plain = {str(name): value for name, value in row.items()}
    if plain.get("tags") is not None:
        plain["tags"] = orjson.loads(plain["tags"])
    return plain


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)
