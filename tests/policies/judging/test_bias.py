"""Whether a judge looks at the places."""

from __future__ import annotations

import pytest

from policies.judging.bias import Bias, bias


def test_by_place() -> None:
    """Two verdicts of four, one of two: the first two places are expected 1/4 + 1/4 + 1/2 times each."""
    found = bias([(4, 1), (4, 1), (2, 2)])
    assert found.verdicts == 3
    assert found.places() == {1: (2, 1.0), 2: (1, 1.0), 3: (0, 0.5), 4: (0, 0.5)}
    assert found.distance == pytest.approx((1 + 0 + 0.5 + 0.5) / 2 / 3)


def test_no_bias_and_nothing_but_bias() -> None:
    assert bias((4, place) for place in (1, 2, 3, 4)).distance == 0.0
    assert bias([(4, 1)] * 8).distance == pytest.approx(0.75)
    assert Bias().distance == 0.0 and Bias().verdicts == 0 and Bias().places() == {}


def test_they_add_up() -> None:
    one, other = [(4, 1), (3, 2)], [(4, 1), (4, 4)]
    assert bias(one) + bias(other) == bias(one + other)
    assert bias(one) + Bias() == bias(one)


@pytest.mark.parametrize("verdict", [(4, 0), (4, 5)])
def test_a_place_that_was_not_shown(verdict: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not shown"):
        bias([verdict])
