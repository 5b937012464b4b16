from __future__ import annotations

import pytest

from gateway.load.numbers import fair_shares, jain, percentile


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(n) for n in range(1, 101)]

    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 0.99, 1.0)] == [1.0, 50.0, 95.0, 99.0, 100.0]
    assert percentile([7.0], 0.01) == 7.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([], 0.5) is None


def test_jain_is_one_for_equals_and_the_share_of_the_served_for_a_monopoly() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([1.0, 2.0]) == pytest.approx(0.9)
    assert jain([]) is None
    assert jain([0.0, 0.0]) is None


@pytest.mark.parametrize(
    ("demand", "weight", "total", "fair"),
    [
        ({"a": 10, "b": 10}, {"a": 1, "b": 1}, 20, {"a": 10, "b": 10}),
        ({"a": 100, "b": 100}, {"a": 3, "b": 1}, 40, {"a": 30, "b": 10}),
        # b wants less than its half: what it leaves is the others'.
        ({"a": 100, "b": 4, "c": 100}, {"a": 1, "b": 1, "c": 1}, 24, {"a": 10, "b": 4, "c": 10}),
        ({"a": 100, "b": 4, "c": 100}, {"a": 2, "b": 1, "c": 1}, 34, {"a": 20, "b": 4, "c": 10}),
        ({"a": 0, "b": 5}, {"a": 9, "b": 1}, 3, {"a": 0, "b": 3}),
        ({"a": 1, "b": 1}, {"a": 1, "b": 1}, 50, {"a": 1, "b": 1}),
        ({"a": 5}, {"a": 1}, 0, {"a": 0}),
    ],
)
def test_fair_shares_are_weighted_max_min(demand: dict[str, float], weight: dict[str, float], total: float, fair: dict[str, float]) -> None:
    assert fair_shares(demand, weight, total) == pytest.approx(fair)
