from __future__ import annotations

import pytest

from gateway.telemetry.pace import Pace


def test_tokens_per_second_over_half_a_minute() -> None:
    pace = Pace(0.0)
    for second in range(1, 61):
        pace.of("a").value += 10.0 if second <= 40 else 0.0
        pace.tick(float(second))
    # Since second 30: ten seconds with 10 tokens each.
    assert pace.per_second(60.0) == {"a": pytest.approx(100 / 30)}


def test_the_first_second_is_not_a_burst() -> None:
    pace = Pace(0.0)
    pace.of("a").value += 10.0
    assert pace.per_second(0.01) == {"a": 10.0}


def test_a_pool_that_went_and_came_back_counts_from_nothing() -> None:
    pace = Pace(0.0)
    pace.of("a").value += 1_000.0
    pace.of("b").value += 30.0
    pace.tick(1.0)
    pace.keep(frozenset(("b",)))
    assert set(pace.per_second(2.0)) == {"b"}
    pace.of("a").value += 1.0
    pace.tick(32.0)
    assert pace.per_second(33.0) == {"a": 0.0, "b": 0.0}
