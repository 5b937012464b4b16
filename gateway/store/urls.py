"""Where a storage URL leads: to a SQLite file, or to a PostgreSQL database."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

FORMS: Final = (
    "a storage URL is sqlite:///FILE (four slashes for an absolute path) or postgresql://USER:PASSWORD@HOST/DATABASE "
    "(a password's / @ ? # as %2F %40 %3F %23); empty: nothing is kept"
)

_FILE = "sqlite:///"
# What may stand behind the `?`. Not a password: only the one before the @ is known as a secret wherever a configuration is shown.
_OPTIONS = frozenset(
    (
        "application_name",
        "channel_binding",
        "connect_timeout",
        "host",
        "hostaddr",
        "passfile",
        "port",
        "sslcert",
        "sslcrl",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
        "user",
    )
)


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """A file; it need not be there yet."""

    file: Path

    @property
    def url(self) -> str:
        """The URL again, absolute."""
        return f"{_FILE}{self.file.absolute()}"


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A database. The URL is libpq's, and may hold a password: never to be shown."""

    url: str = field(repr=False)


Location = SqliteUrl | PostgresUrl


def located(url: str) -> Location | None:
    """Where the URL leads; None for an empty one: nothing is kept. Raises ValueError, without the URL in it."""
    if not url:
        return None
    if url.startswith(("postgresql://", "postgres://")):
        if not _is_libpq(url):
            raise ValueError(FORMS)
        return PostgresUrl(url)
    file = url.removeprefix(_FILE)
    if file == url or file in ("", ":memory:") or file.startswith("file:") or "?" in file:
        raise ValueError(FORMS)
    return SqliteUrl(Path(file))


def _is_libpq(url: str) -> bool:
    """Whether it names a database, and hides no password in a place where nobody looks for one."""
    try:
        parts = urlsplit(url)
        ports_are_numbers = all(address.rpartition("]")[2].rpartition(":")[2].isdigit() for address in _with_ports(parts.netloc))
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        return False
    database = parts.path.removeprefix("/")
    return (
        ports_are_numbers
        and parts.netloc.count("@") <= 1
        and bool(database)
        and not any(letter in database for letter in "/@")
        and "#" not in url
        and all(name in _OPTIONS for name, _ in options)
        and not any(letter <= " " for letter in url)
    )


def _with_ports(netloc: str) -> list[str]:
    """The addresses, of one host or several, that have a port."""
    return [address for address in netloc.rpartition("@")[2].split(",") if ":" in address.rpartition("]")[2]]
