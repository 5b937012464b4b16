"""How many samples a scorer needs, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.pricing.hazard import Prior
from policies.pricing.optscale import FirstGood, calibrated, samples_needed

TENTH = Prior(1.0, 4.0)  # after five that fell short 1 / 10


@pytest.mark.parametrize(
    ("chance", "confidence", "samples"),
    [(0.5, 0.9, 4), (0.5, 0.75, 2), (0.1, 0.9, 22), (0.9, 0.9, 1), (0.99, 0.5, 1), (1.0, 0.9, 1), (0.0, 0.9, math.inf)],
)
def test_samples_needed(chance: float, confidence: float, samples: float) -> None:
    """A half: 1 - 1/8 is not 0.9, 1 - 1/16 is. A tenth: ln 0.1 / ln 0.9 = 21.85."""
    assert samples_needed(chance, confidence) == samples


def test_the_least_number_that_is_enough() -> None:
    for chance in (0.03, 0.2, 0.37):
        n = int(samples_needed(chance, 0.95))
        assert 1 - (1 - chance) ** n >= 0.95 > 1 - (1 - chance) ** (n - 1)


def test_the_first_good_score_ends_it() -> None:
    rule = FirstGood(0.8, TENTH)
    assert rule.more([]) == 1
    assert rule.more([0.79]) == 1
    assert rule.more([0.2, 0.8]) == 0


def test_n_star_ends_it_and_so_does_the_cap() -> None:
    assert FirstGood(0.8, TENTH).limit == 22
    assert FirstGood(0.8, TENTH).more([0.1] * 21) == 1
    assert FirstGood(0.8, TENTH).more([0.1] * 22) == 0
    assert FirstGood(0.8, TENTH, cap=10).limit == 10
    assert FirstGood(0.8, Prior(0.01, 10.0)).limit == 64
    assert FirstGood(0.8, TENTH, confidence=0.99).limit == 44


@pytest.mark.parametrize("a", [0.2, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("mean", [0.03, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_confidence_is_kept_on_average_within_reach(a: float, mean: float, confidence: float) -> None:
    """By the integral over rates that 64 samples can do it for; never more than a point below."""
    prior = Prior(a, a / mean - a)
    rates = (np.arange(20_000) + 0.5) / 20_000
    density = np.exp((prior.a - 1) * np.log(rates) + (prior.b - 1) * np.log1p(-rates))
    density[1 - (1 - rates) ** 64 < confidence] = 0.0
    limit = FirstGood(0.8, prior, confidence).limit
    assert (density * (1 - (1 - rates) ** limit)).sum() / density.sum() >= confidence - 0.0105


def test_rounds() -> None:
    rule = FirstGood(0.8, TENTH, first=4, then=2)
    assert [rule.more([0.1] * n) for n in (0, 3, 4, 20, 21, 22)] == [4, 1, 2, 2, 1, 0]


def test_what_a_good_score_is_worth_decides() -> None:
    """After five the next one is good with 1 / 10, after fifteen with 1 / 20."""
    rule = FirstGood(0.8, TENTH, worth=1_000.0)
    assert rule.more([0.1] * 5, tokens=5 * 99.0) == 1
    assert rule.more([0.1] * 5, tokens=5 * 101.0) == 0
    assert FirstGood(0.8, TENTH, least=0.05).more([0.1] * 15) == 1
    assert FirstGood(0.8, TENTH, least=0.0501).more([0.1] * 15) == 0


def test_the_prior_counts_scores_of_the_level() -> None:
    scores = [[0.9, 0.2], [0.8, 0.95], [0.1, 0.3], [0.85, 0.5]]
    found = calibrated(scores, 0.8)
    assert found.a / (found.a + found.b) == pytest.approx(0.5, abs=0.02)
    assert calibrated([[0.1] * 8] * 20, 0.8).hazard(0) < 0.001
