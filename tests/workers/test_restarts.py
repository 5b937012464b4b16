"""How soon a worker is started again."""

from __future__ import annotations

import pytest

from gateway.workers.restarts import HEALTHY_S, Restarts


def test_the_first_time_at_once_then_later_and_later_then_never() -> None:
    restarts = Restarts(first_s=0.5, most=5)
    assert [restarts.after(1.0) for _ in range(6)] == [0.0, 0.5, 1.0, 2.0, 4.0, None]


@pytest.mark.parametrize("before", [0, 1, 5])
def test_one_that_lived_makes_good(before: int) -> None:
    restarts = Restarts(first_s=0.5, most=5)
    for _ in range(before):
        restarts.after(0.0)
    assert restarts.after(HEALTHY_S) == 0.0
    assert [restarts.after(HEALTHY_S - 0.1) for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, None]
