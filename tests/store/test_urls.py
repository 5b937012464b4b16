from __future__ import annotations

from pathlib import Path

import pytest

from gateway.store.urls import FORMS, Location, PostgresUrl, SqliteUrl, located


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("", None),
        ("sqlite:////var/lib/trilemma/d.db", SqliteUrl(Path("/var/lib/trilemma/d.db"))),
        ("sqlite:///d.db", SqliteUrl(Path("d.db"))),
        ("sqlite:////srv/a b%20c.db", SqliteUrl(Path("/srv/a b%20c.db"))),
    ],
)
def test_where_a_url_leads(url: str, location: Location | None) -> None:
    assert located(url) == location


def test_a_file_s_url_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SqliteUrl(Path("d.db")).url == f"sqlite:///{tmp_path}/d.db"
    assert located(SqliteUrl(Path("d.db")).url) == SqliteUrl(tmp_path / "d.db")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@db/trilemma",
        "postgres://user:hunter2@db:5433/trilemma?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://user:hunt:er2%2F%40@[::1]:5432/trilemma",
        "postgresql://user@a:1,b,c:3/trilemma?target_session_attrs=read-write&passfile=/run/hunter2",
        "postgresql:///trilemma?host=/run/postgresql",
        "postgresql://user:@/trilemma?host=/tmp/socket&port=5433",
    ],
)
def test_a_database_of_a_server(url: str) -> None:
    location = located(url)
    assert location == PostgresUrl(url)
    assert "hunter2" not in f"{location!r} {location}"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file:d.db",
        "sqlite:///d.db?timeout=5",
        "sqlite+aiosqlite:///d.db",
        "/var/lib/d.db",
        "mysql://user:hunter2@db/trilemma",
        "postgresql+asyncpg://user:hunter2@db/trilemma",
        "postgresql://user:hunter2@db",
        "postgresql://user:hunter2@db/",
        "postgresql://user:hunter2@db/a/b",
        "postgresql://user:hunter2@db:port/trilemma",
        "postgresql://user:hunter2@[::1/trilemma",
        # A password that is cut by what is in it would be taken for something that may be shown.
        "postgresql://user:h@hunter2@db/trilemma",
        "postgresql://user:12/hunter2@db/trilemma",
        "postgresql://user:12/hunter2@db",
        "postgresql://user:12?hunter2@db/trilemma",
        "postgresql://user:12#hunter2@db/trilemma",
        "postgresql://user:1 hunter2@db/trilemma",
        "postgresql://user@db/trilemma?password=hunter2",
        "postgresql://user@db/trilemma?sslpassword=hunter2",
        "postgresql://user@db/trilemma?options=-c%20x%3Dhunter2",
        "postgresql://user@db/trilemma?hunter2",
    ],
)
def test_what_does_not_work_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"sqlite:///FILE .* or postgresql://") as refused:
        located(url)
    assert str(refused.value) == FORMS
    assert refused.value.__context__ is None
