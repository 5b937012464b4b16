"""Which limits a key has, and what a request takes of each."""

from __future__ import annotations

import pytest

from gateway.access.limit import Limit, Need, limits_of
from gateway.config.schema import Rules

NONE = Rules()


def told(*limits: Limit) -> list[tuple[str, str, int]]:
    return [(limit.kind, limit.subject, limit.most) for limit in limits]


def test_nothing_configured_is_no_limit() -> None:
    assert limits_of("dev", NONE, NONE, "acme", {}) == ()
    assert limits_of("dev", NONE, NONE, "acme", {"other": Rules(rpm=1)}) == ()


def test_a_keys_own_goes_before_the_default_kind_by_kind() -> None:
    found = limits_of("dev", Rules(rpm=5), Rules(rpm=60, tpm=1_000, concurrency=2), "acme", {})

    assert told(*found) == [("requests", "key dev", 5), ("tokens", "key dev", 1_000), ("concurrency", "key dev", 2)]


def test_the_tenants_limits_are_beside_them() -> None:
    found = limits_of("dev", Rules(rpm=5), NONE, "acme", {"acme": Rules(rpm=7, concurrency=3)})

    assert told(*found) == [("requests", "key dev", 5), ("requests", "tenant acme", 7), ("concurrency", "tenant acme", 3)]


def test_a_key_and_a_tenant_of_one_name_are_not_counted_together() -> None:
    found = limits_of("acme", Rules(rpm=5), NONE, "acme", {"acme": Rules(rpm=7)})

    assert len({limit.id for limit in found}) == 2


@pytest.mark.parametrize(
    ("need", "kind", "most", "amount"),
    [
        (Need(100, 50), "requests", 10, 1),
        (Need(100, 50), "concurrency", 10, 1),
        (Need(100, 50), "tokens", 10, 150),
        (Need(100, None), "tokens", 100_000, 1_124),  # an answer of 1,024 tokens
        (Need(100, None), "tokens", 800, 200),  # but of no more than an eighth
        (Need(0, 0), "tokens", 10, 0),
    ],
)
def test_what_a_request_takes(need: Need, kind: str, most: int, amount: int) -> None:
    assert need.under(Limit(kind, "key dev", most, "id")) == amount  # type: ignore[arg-type]
