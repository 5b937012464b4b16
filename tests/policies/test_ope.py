"""The bench of off-policy intervals: logs as they are said to be, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from policies.bench.ope import Cell, Logging, Outcomes, coverage, drawn, farthest, targets


def outcomes(n: int = 600, seed: int = 0) -> Outcomes:
    """3 arms; the first is best in category x, the second in y."""
    generator = np.random.default_rng(seed)
    categories = ["x" if i % 3 else "y" for i in range(n)]
    success = np.array([[0.8, 0.5, 0.4] if each == "x" else [0.3, 0.9, 0.4] for each in categories])
    rewards = (generator.random((n, 3)) < success).astype(np.float64)
    features = np.array([[each == "x"] for each in categories], dtype=np.float64)
    return Outcomes(rewards, features, categories)


def test_targets_are_policies_with_their_names() -> None:
    found = targets(outcomes())
    assert list(found) == ["best fixed", "second fixed", "best per category", "softmax"]
    for target in found.values():
        assert target.sum(axis=1) == pytest.approx(np.ones(600))
    assert found["best per category"][:3].tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert (found["best fixed"] != found["second fixed"]).any()


@pytest.mark.parametrize("adaptive", [False, True])
def test_logs_are_drawn_with_the_probabilities_that_they_hold(adaptive: bool) -> None:
    of = outcomes()
    rows, chosen, probabilities = drawn(of.rewards, Logging(0.3, 30_000, adaptive), np.random.default_rng(1))
    assert rows.min() >= 0 and rows.max() < 600
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(30_000))
    assert probabilities.min() >= 0.1 - 1e-9
    # Pearson's chi-square of the choices, 2 degrees of freedom: 13.8 is its 0.999 quantile.
    expected, seen = probabilities.sum(axis=0), np.bincount(chosen, minlength=3)
    assert ((seen - expected) ** 2 / expected).sum() < 13.8
    if not adaptive:
        # The arm of middling quality is the greedy one.
        assert probabilities[0].argmax() == np.argsort(of.rewards.mean(axis=0))[1]
    else:
        assert probabilities[-1].argmax() == of.rewards.mean(axis=0).argmax()


@pytest.mark.parametrize("adaptive", [False, True])
def test_intervals_hold_the_truth_as_often_as_they_say(adaptive: bool) -> None:
    of = outcomes()
    cells = coverage(of, Logging(0.3, 600, adaptive), targets(of), replications=200)
    for cell in cells:
        # 200 replications of a true 0.95 lie within 4 standard errors, 0.06.
        assert cell.coverage > 0.885, cell.target
        assert abs(cell.estimates.mean() - cell.truth) < 5 * cell.estimates.std() / np.sqrt(200)
        assert cell.refused < 0.05
        assert 0.0 < cell.half_width < 0.3
        assert cell.ess.shape == cell.lows.shape == (200,)


def test_logs_are_the_same_for_the_same_seed() -> None:
    of = outcomes()
    one, same, other = (coverage(of, Logging(0.3, 300), targets(of), 3, seed)[0].estimates.tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_refused_logs_count_for_themselves() -> None:
    nan = np.nan
    cell = Cell(
        Logging(0.1, 9), "t", 0.5, np.full(4, 0.5), np.array([0.4, nan, 0.6, 0.1]), np.array([0.6, nan, 0.8, 0.7]), np.full(4, 20.0)
    )
    assert cell.coverage == pytest.approx(2 / 3)
    assert cell.refused == 0.25
    assert cell.half_width == pytest.approx((0.1 + 0.1 + 0.3) / 3)
    wide = Cell(cell.logging, "u", 0.5, cell.estimates, np.zeros(4), np.ones(4), cell.ess)
    assert farthest([cell, wide]) is cell
