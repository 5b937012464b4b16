"""Where a storage URL leads."""

from __future__ import annotations

from pathlib import Path

_PREFIX = "sqlite:///"


def database_file(url: str) -> Path | None:
    """The file of `sqlite:///FILE`; None for an empty URL: nothing is kept. Raises ValueError, without the URL in it."""
    if not url:
        return None
    file = url.removeprefix(_PREFIX)
    if file == url or file in ("", ":memory:") or file.startswith("file:") or "?" in file:
        raise ValueError("today only sqlite:///FILE works (four slashes for an absolute path); empty: nothing is kept")
    return Path(file)
