"""What a PostgreSQL error means, in words that anybody may read: the server's own may hold values, names of hosts and paths."""

from __future__ import annotations

from collections.abc import Mapping

_REASONS: Mapping[str, str] = {
    "08": "the connection to the database broke",
    "28": "the database refuses the login",
    "3D": "there is no such database",
    "25006": "the database may only be read",
    "40": "the database was busy with something else",
    "42": "the database lacks the schema, or what was asked is no question",
    "42501": "the database does not allow this login to do so",
    "42P07": "a table of that name is there already",
    "53": "the database lacks memory or disk",
    "53100": "the disk of the database is full",
    "53300": "the database has too many connections",
    "55P03": "the database is locked",
    "57014": "the database did not answer in time",
    "57P": "the database is starting or shutting down",
    "58": "the database failed",
}


def reason(sqlstate: str | None) -> str:
    """By the five letters of the state, or the first of them; None: there was no server to give one."""
    if sqlstate is None:
        return "the database cannot be reached"
    for letters in (5, 3, 2):
        if (found := _REASONS.get(sqlstate[:letters])) is not None:
            return found
    return f"the database failed ({sqlstate})"
