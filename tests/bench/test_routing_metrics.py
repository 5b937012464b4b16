"""The routing suite's arithmetic, against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.bench import metrics

WEAK = np.array([1.0, 0.0, 0.0, 1.0])
STRONG = np.array([1.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("scores", "area"),
    [
        # The one prompt that gains comes first: c = 0, 1, 1, 1, 1 over k/n = 0, 1/4 ... : 1/8 + 3/4.
        ([0.0, 9.0, 0.0, 0.0], 0.875),
        # Third: c = 0, 0, 0, 1, 1: 1/8 + 1/4.
        ([3.0, 1.0, 2.0, 0.0], 0.375),
        # All alike: they stay in their order, so it is the second.
        ([0.0, 0.0, 0.0, 0.0], 0.625),
    ],
)
def test_apgr_is_the_area_under_the_curve(scores: list[float], area: float) -> None:
    assert metrics.apgr(np.array(scores), WEAK, STRONG) == pytest.approx(area)


def test_a_prompt_on_which_the_weak_model_is_better_takes_away() -> None:
    # Gains in the order of the scores: -1, 1, 1: c = 0, -1, 0, 1: (-1/2 - 1/2 + 1/2) / 3.
    weak, strong = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 1.0])
    assert metrics.apgr(np.array([3.0, 2.0, 1.0]), weak, strong) == pytest.approx(-1 / 6)


def test_without_a_gap_there_is_nothing_to_recover() -> None:
    with pytest.raises(ValueError, match="no better"):
        metrics.apgr(np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0]))


def test_cpt_is_the_least_share_of_strong_calls() -> None:
    weak, strong = np.zeros(10), np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    scores = np.arange(10, 0, -1.0)  # c after 1..10: 1/4 1/4 2/4 3/4 3/4 4/4 ...
    assert metrics.cpt(scores, weak, strong, 0.5) == pytest.approx(0.3)
    assert metrics.cpt(scores, weak, strong, 0.8) == pytest.approx(0.6)
    assert metrics.cpt(scores, weak, strong, 0.0) == 0.0


def test_cost_at_a_share_of_the_strong_models_quality() -> None:
    # Strong: 4 right, so 75 % is 3; the weak one has 1, and the two best scored prompts bring 1 each: 2 of 5 calls.
    weak, strong = np.array([0.0, 0.0, 0.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    assert metrics.cost_at(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), weak, strong, 0.75, 0.1) == pytest.approx(0.4 + 0.6 * 0.1)


def test_auroc_counts_pairs_and_ties_by_half() -> None:
    # Positives 3, 1; negatives 2, 1: pairs 3>2, 3>1, 1<2, 1=1: (1 + 1 + 0 + 1/2) / 4.
    scores, labels = np.array([3.0, 1.0, 2.0, 1.0]), np.array([True, True, False, False])
    assert metrics.auroc(scores, labels) == pytest.approx(2.5 / 4)
    assert math.isnan(metrics.auroc(scores, np.zeros(4, dtype=bool)))


def test_the_paired_bootstrap_is_that_of_resampled_prompts() -> None:
    random = np.random.default_rng(1)
    n = 80
    weak = (random.random(n) < 0.5).astype(float)
    strong = np.maximum(weak, (random.random(n) < 0.6).astype(float))
    one, other = random.standard_normal(n), random.standard_normal(n)
    low, high = metrics.paired(one, other, weak, strong, resamples=200, seed=7)
    drawn = np.random.default_rng(7)
    differences = []
    for _ in range(200):
        rows = np.sort(drawn.integers(0, n, n))
        differences.append(metrics.apgr(one[rows], weak[rows], strong[rows]) - metrics.apgr(other[rows], weak[rows], strong[rows]))
    assert (low, high) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])))
    assert metrics.paired(one, one, weak, strong, resamples=10) == (0.0, 0.0)
