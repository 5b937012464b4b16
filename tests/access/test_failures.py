"""Wrong keys by address."""

from __future__ import annotations

import pytest

from gateway.access.failures import FailedKeys
from gateway.wire.errors import ApiError

WRONG = ((b"authorization", b"Bearer sk-wrong"),)


class Clock:
    now = 500.0

    def __call__(self) -> float:
        return self.now


def turned_away(failed: FailedKeys, address: str, most: int = 3) -> ApiError | None:
    try:
        failed.count(address, WRONG, most)
    except ApiError as error:
        return error
    return None


def test_after_so_many_in_a_minute_more_are_told_to_wait_and_it_is_true() -> None:
    clock = Clock()
    failed = FailedKeys(clock)
    for _ in range(3):
        assert turned_away(failed, "10.0.0.1") is None
        clock.now += 10
    error = turned_away(failed, "10.0.0.1")

    assert error is not None
    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    headers = dict(error.headers)
    clock.now += int(headers[b"retry-after-ms"]) / 1e3
    assert turned_away(failed, "10.0.0.1") is None
    assert turned_away(failed, "10.0.0.1") is not None


def test_those_that_are_turned_away_do_not_make_the_wait_longer() -> None:
    clock = Clock()
    failed = FailedKeys(clock)
    for _ in range(3):
        turned_away(failed, "10.0.0.1")
    for _ in range(100):
        assert turned_away(failed, "10.0.0.1") is not None
    clock.now += 61

    assert turned_away(failed, "10.0.0.1") is None


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("no:address", "no:address", True),
        ("", "10.0.0.1", False),
    ],
)
def test_who_counts_together(one: str, other: str, together: bool) -> None:
    failed = FailedKeys(Clock())
    for _ in range(3):
        turned_away(failed, one)

    assert (turned_away(failed, other) is not None) == together


def test_no_key_is_no_wrong_key_and_nought_is_no_limit() -> None:
    failed = FailedKeys(Clock())
    for _ in range(100):
        failed.count("10.0.0.1", ((b"host", b"x"),), 1)
        assert turned_away(failed, "10.0.0.1", most=0) is None
    assert len(failed) == 0


def test_memory_is_bounded_and_those_who_go_on_are_kept() -> None:
    failed = FailedKeys(Clock(), kept=100)
    for _ in range(3):
        turned_away(failed, "10.9.9.9")
    for n in range(1_000):
        turned_away(failed, f"10.0.{n // 250}.{n % 250}")
        assert turned_away(failed, "10.9.9.9") is not None
    assert len(failed) == 100
