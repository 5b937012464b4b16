"""The price of a second under load."""

from __future__ import annotations

from itertools import pairwise

import pytest

from policies.pricing.load import latency_price, utilisation


@pytest.mark.parametrize(
    ("used", "price"),
    [(0.0, 2.0), (0.69, 2.0), (0.7, 2.0), (0.8, 2.8), (1.0, 4.4), (1.7, 10.0), (4.0, 28.4), (400.0, 28.4)],
)
def test_by_hand(used: float, price: float) -> None:
    """2 (1 + 4 (used - 0.7)) beyond 0.7, up to a utilisation of 4."""
    assert latency_price(2.0, used) == pytest.approx(price)


def test_it_never_falls_with_load_and_has_no_step() -> None:
    prices = [latency_price(1.0, number / 1_000) for number in range(6_000)]
    assert prices == sorted(prices)
    assert max(after - before for before, after in pairwise(prices)) < 0.005


def test_who_does_not_mind_waiting_does_not_mind_load() -> None:
    assert latency_price(0.0, 3.0) == 0.0


@pytest.mark.parametrize(("running", "waiting", "places", "used"), [(0, 0, 8, 0.0), (6, 0, 8, 0.75), (8, 4, 8, 1.5), (3, 0, 0, 3.0)])
def test_utilisation(running: int, waiting: int, places: int, used: float) -> None:
    assert utilisation(running, waiting, places) == used
