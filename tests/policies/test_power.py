"""Requests that a promotion needs, against sums by hand and logs that are drawn."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from policies.offpolicy.estimators import Sample, differences
from policies.offpolicy.power import Traffic, logged_variance, needs, scale, variance
from policies.offpolicy.sequences import Moments


def test_the_variance_is_that_of_the_formula() -> None:
    # 0.7 * 0.3 * (1 - 0.025) / 0.025
    assert variance(Traffic(floor=0.1, plans=4)) == pytest.approx(0.21 * 39)
    assert variance(Traffic(share=0.5)) == pytest.approx(0.21)
    assert variance(Traffic(share=0.5, labelled=0.1, explained=0.5)) == pytest.approx(1.05)
    # Where they agree, the choice has 1 - 3 * 0.025.
    assert variance(Traffic(floor=0.1, plans=4, differs=0.2)) == pytest.approx(0.21 * (0.2 * 39 + 0.8 * 0.075 / 0.925))
    assert scale(Traffic(floor=0.1, plans=4, labelled=0.5)) == pytest.approx(1 + 39 / 0.5)


def test_it_is_the_variance_of_logs_that_are_drawn() -> None:
    traffic = Traffic(floor=0.2, plans=2, success=0.7, differs=0.5)
    generator = np.random.default_rng(0)
    n = 200_000
    logging = np.tile([0.9, 0.1], (n, 1))
    chosen = (generator.random(n) < 0.1).astype(np.int64)
    differs = generator.random(n) < 0.5
    target = np.where(differs[:, None], [[0.0, 1.0]], [[1.0, 0.0]])
    rewards = (generator.random(n) < 0.7).astype(np.float64)
    sample = Sample(
        chosen, logging[np.arange(n), chosen], logging, target, rewards, np.ones(n), np.full((n, 2), 0.7), np.arange(n, dtype=np.int64)
    )
    assert logged_variance(differences(sample)[0]) == pytest.approx(variance(traffic), rel=0.03)


def test_one_look_needs_what_the_textbook_says() -> None:
    # (1.959964 + 0.841621)^2 * 0.21 / 0.02^2
    (need,) = needs(0.21, 2.0, [0.02])
    assert need.fixed == 4121
    assert need.half_width == pytest.approx(1.959964 * sqrt(0.21 / 4121), rel=1e-6)
    fixed = [each.fixed for each in needs(0.21, 2.0, [0.01, 0.02, 0.05])]
    assert fixed == pytest.approx([16483, 4121, 660], abs=1)


def test_at_any_time_needs_more_and_then_is_enough() -> None:
    (need,) = needs(0.21, 2.0, [0.05])
    assert need.fixed < need.anytime < 10 * need.fixed
    # So many differences of mean 0.05 and variance 0.21: the bound of the product finds the gain in about 80 of 100 cases.
    generator = np.random.default_rng(1)
    values = 0.05 + sqrt(0.21) * generator.choice([-1.0, 1.0], size=(400, need.anytime))
    found = np.mean([Moments(scale=2.0).update(row).interval(0.05)[0] > 0 for row in values])
    assert 0.72 < found < 0.88


@pytest.mark.parametrize(
    ("traffic", "message"),
    [
        (Traffic(floor=0.0), "without exploration"),
        (Traffic(share=1.5), "without exploration"),
        (Traffic(labelled=0.0), "between 0 and 1"),
        (Traffic(success=1.0), "between 0 and 1"),
        (Traffic(floor=0.9, plans=0), "at least 2 plans"),
    ],
)
def test_what_no_log_could_show_is_refused(traffic: Traffic, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        variance(traffic)


@pytest.mark.parametrize("gain", [0.0, -0.1])
def test_a_gain_must_be_one(gain: float) -> None:
    with pytest.raises(ValueError, match="gain must be above 0"):
        needs(0.2, 2.0, [gain])
    with pytest.raises(ValueError, match="cannot be found"):
        needs(1e9, 1e6, [1e-6])
