"""The headroom of several tries, against every sequence of outcomes that there is."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from models.response import headroom


def any_of(p: Fraction, tries: int) -> Fraction:
    """The chance that one of so many is good, where the chance of each question is drawn from Beta(p, 1 - p): all sequences one by one.
    With g good ones and b bad ones so far the next is good with the chance (p + g) / (1 + g + b)."""
    total = Fraction(0)
    for sequence in product((True, False), repeat=tries):
        chance, good = Fraction(1), 0
        for before, each in enumerate(sequence):
            passes = (p + good) / (1 + before)
            chance *= passes if each else 1 - passes
            good += each
        total += chance if any(sequence) else 0
    return total


@pytest.mark.parametrize("tries", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(7, 8), Fraction(1)])
def test_headroom_is_what_several_tries_add_to_one(p: Fraction, tries: int) -> None:
    found, _ = headroom(float(p), tries)

    assert found == pytest.approx(float(any_of(p, tries) - p), abs=1e-12)


@pytest.mark.parametrize("tries", [1, 2, 5, 64])
@pytest.mark.parametrize("p", [0.001, 0.3, 0.8, 0.999])
def test_its_slope_is_that_of_the_curve(p: float, tries: int) -> None:
    step = 1e-6

    numeric = (headroom(p + step, tries)[0] - headroom(p - step, tries)[0]) / (2 * step)

    assert headroom(p, tries)[1] == pytest.approx(numeric, abs=1e-5)


def test_more_tries_have_more_headroom_and_never_more_than_there_is() -> None:
    for p in (0.0, 0.2, 0.7, 1.0):
        found = [headroom(p, tries)[0] for tries in range(1, 65)]

        assert found[0] == 0.0
        assert found == sorted(found)
        assert found[-1] <= 1.0 - p
