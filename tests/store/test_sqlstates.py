from __future__ import annotations

import pytest

from gateway.store.sqlstates import reason


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "the database cannot be reached"),
        ("08006", "the connection to the database broke"),
        ("28P01", "the database refuses the login"),
        ("42P01", "the database lacks the schema, or what was asked is no question"),
        ("42501", "the database does not allow this login to do so"),
        ("53100", "the disk of the database is full"),
        ("53200", "the database lacks memory or disk"),
        ("57P01", "the database is starting or shutting down"),
        ("57014", "the database did not answer in time"),
        ("XX001", "the database failed (XX001)"),
    ],
)
def test_the_longest_that_is_known_says_it(state: str | None, said: str) -> None:
    assert reason(state) == said
