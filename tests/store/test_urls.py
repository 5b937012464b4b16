from __future__ import annotations

from pathlib import Path

import pytest

from gateway.store.urls import database_file


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("", None),
        ("sqlite:////var/lib/trilemma/d.db", Path("/var/lib/trilemma/d.db")),
        ("sqlite:///d.db", Path("d.db")),
        ("sqlite:////srv/a b%20c.db", Path("/srv/a b%20c.db")),
    ],
)
def test_where_a_url_leads(url: str, file: Path | None) -> None:
    assert database_file(url) == file


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@db/trilemma",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file:d.db",
        "sqlite:///d.db?timeout=5",
        "sqlite+aiosqlite:///d.db",
        "/var/lib/d.db",
    ],
)
def test_what_does_not_work_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///FILE") as refused:
        database_file(url)
    assert "hunter2" not in str(refused.value)
