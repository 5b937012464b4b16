"""A quantile of what was lately measured."""

from __future__ import annotations

import math
import random

import pytest

from models.quantile import HALF_LIFE, Quantile


def of(values: list[float], share: float = 0.95) -> Quantile:
    found = Quantile(share)
    for value in values:
        found.observe(value)
    return found


def drawn(count: int, m: float = 0.0, s: float = 0.7, seed: int = 1) -> list[float]:
    draws = random.Random(seed)
    return [draws.lognormvariate(m, s) for _ in range(count)]


@pytest.mark.parametrize(("share", "deviations"), [(0.05, -1.645), (0.5, 0.0), (0.95, 1.645), (0.99, 2.326)])
def test_it_is_that_of_the_distribution(share: float, deviations: float) -> None:
    assert of(drawn(5_000), share).value() == pytest.approx(math.exp(0.7 * deviations), rel=0.25)


def test_of_few_values_it_is_near_the_exact_one() -> None:
    """100 different ones in random order: decay shifts their weights a little, bins are 9 % wide."""
    values = [0.1 * number for number in range(1, 101)]
    random.Random(2).shuffle(values)
    assert of(values).value() == pytest.approx(9.5, rel=0.1)


def test_too_few_values_tell_nothing() -> None:
    found = of([1.0] * 19)
    assert found.value() is None
    found.observe(1.0)
    assert found.value() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(("value", "told"), [(0.0, 0.001), (1e-9, 0.001), (0.01, 0.01), (3_600.0, 3_600.0), (1e9, 4_096.0)])
def test_what_lies_outside_is_at_the_edge(value: float, told: float) -> None:
    assert of([value] * 30).value() == pytest.approx(told, rel=0.1)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_change_is_followed(factor: float) -> None:
    """At first by what the new ones add, and after some half-lives they are all there is."""
    found = of(drawn(5_000))
    for value in drawn(int(6 * HALF_LIFE), seed=3):
        found.observe(factor * value)
    assert found.value() == pytest.approx(factor * math.exp(0.7 * 1.645), rel=0.3)


def test_one_value_far_off_moves_nothing() -> None:
    found = of(drawn(1_000))
    before = found.value()
    assert before is not None
    found.observe(1e6)
    assert found.value() == pytest.approx(before, rel=0.1)


def test_what_cannot_be_is_left_out() -> None:
    found = of(drawn(100))
    before = found.value()
    for value in (-1.0, math.nan, math.inf, -math.inf):
        found.observe(value)
    assert (found.value(), found.count) == (before, 100)


def test_a_million_values_are_no_more_than_the_last() -> None:
    found = of([1.0] * 100_000)
    assert found.value() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 95.0])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Quantile(share)
