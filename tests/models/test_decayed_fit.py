"""Small fits on line: against numpy's least squares, and through whatever engines may do."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from models.decayed_fit import HALF_LIFE, Line, Plane

PRIOR = (0.05, 0.1, 0.002)
TRUE = (0.08, 0.25, 0.004)


def plane(*, unit: float = 0.15) -> Plane:
    return Plane(PRIOR, unit)


def points(count: int, seed: int = 1) -> list[tuple[float, float]]:
    draws = random.Random(seed)
    return [(draws.lognormvariate(-1, 1), float(draws.randrange(24))) for _ in range(count)]


def true(x1: float, x2: float) -> float:
    return TRUE[0] + TRUE[1] * x1 + TRUE[2] * x2


def test_a_plane_without_noise_is_found() -> None:
    fit = plane()
    for x1, x2 in points(1_000):
        fit.observe(x1, x2, true(x1, x2))
    assert (fit.t0, fit.t1, fit.t2) == pytest.approx(TRUE, rel=0.01)
    assert fit.at(2.0, 10.0) == pytest.approx(0.62, rel=0.01)


def test_a_line_without_noise_is_found() -> None:
    fit = Line((0.02, 0.0002), 0.02)
    for _, x in points(1_000):
        fit.observe(x, 0.012 + 0.0006 * x)
    assert (fit.t0, fit.t1) == pytest.approx((0.012, 0.0006), rel=0.01)


def test_it_is_the_weighted_least_squares_of_the_latest() -> None:
    """With residuals that are too small to be clipped: the solution that numpy finds with all observations at hand."""
    draws = random.Random(3)
    fit = plane()
    rows, targets, weights = [], [], []
    for number, (x1, x2) in enumerate(points(600)):
        y = true(x1, x2) * (1 + 0.1 * draws.choice((-1, 1)))  # never far enough from the last expectation to be clipped, once it is near
        expected = fit.at(x1, x2)
        fit.observe(x1, x2, y)
        if number >= 100:
            rows.append((1.0, x1, x2))
            targets.append(y)
            weights.append(2 ** (number / HALF_LIFE) / max(expected, y))
    root = np.sqrt(np.array(weights))[:, None]
    whole, *_ = np.linalg.lstsq(np.array(rows) * root, np.array(targets) * root[:, 0], rcond=None)
    assert fit.at(0.5, 8.0) == pytest.approx(float(whole @ (1.0, 0.5, 8.0)), rel=0.02)
    assert fit.t1 == pytest.approx(float(whole[1]), rel=0.05)


def test_what_does_not_vary_stays_at_the_prior() -> None:
    """And the rest makes up for it: at that place the fit is right. However long it goes on, nothing blows up."""
    fit = plane()
    for _ in range(50_000):
        fit.observe(0.5, 4.0, 0.2)
    assert fit.at(0.5, 4.0) == pytest.approx(0.2, rel=1e-3)
    assert fit.t2 == pytest.approx(PRIOR[2], rel=0.2)
    assert math.isfinite(fit.at(100.0, 1_000.0))


def test_no_coefficient_is_below_0() -> None:
    """Of a line that falls the nearest is the flat one: its mean."""
    fit, line = plane(), Line((0.02, 0.0002), 0.02)
    draws = random.Random(5)
    for _ in range(2_000):
        x1, x2 = draws.random(), draws.random()
        fit.observe(x1, x2, 1.0 - 0.5 * x1 - 0.4 * x2)
        line.observe(x1, 1.0 - 0.5 * x1)
        assert min(fit.t0, fit.t1, fit.t2, line.t0, line.t1) >= 0.0
    assert (fit.t1, fit.t2, line.t1) == pytest.approx((0.0, 0.0, 0.0), abs=0.03)
    assert (fit.t0, line.t0) == pytest.approx((0.53, 0.74), abs=0.05)


@pytest.mark.parametrize("factor", [1e-6, 0.0, 1e3, 1e9])
def test_one_that_is_far_off_counts_as_one_that_is_off(factor: float) -> None:
    fit = plane()
    draws = random.Random(7)
    for x1, x2 in points(1_000):
        fit.observe(x1, x2, true(x1, x2) * draws.lognormvariate(0, 0.1))
    before = fit.at(0.5, 8.0)
    for _ in range(3):
        fit.observe(0.5, 8.0, true(0.5, 8.0) * factor)
    assert fit.at(0.5, 8.0) == pytest.approx(before, rel=0.03)


def test_one_in_ten_far_off_hardly_matters() -> None:
    draws, fit = random.Random(9), plane()
    for x1, x2 in points(2_000):
        fit.observe(x1, x2, true(x1, x2) * draws.lognormvariate(0, 0.1) * (100 if draws.random() < 0.1 else 1))
    for x1, x2 in ((0.1, 0.0), (0.5, 8.0), (3.0, 20.0)):
        assert fit.at(x1, x2) == pytest.approx(true(x1, x2), rel=0.15)


@pytest.mark.parametrize(("factor", "within"), [(3.0, 80), (1 / 3, 80), (20.0, 200), (0.05, 200)])
def test_a_shift_is_followed(factor: float, within: int) -> None:
    """Long before half of what was known is forgotten; for an engine that was replaced is not an outlier."""
    draws, fit = random.Random(11), plane()
    for x1, x2 in points(1_000):
        fit.observe(x1, x2, true(x1, x2) * draws.lognormvariate(0, 0.1))
    for x1, x2 in points(within, 2):
        fit.observe(x1, x2, factor * true(x1, x2) * draws.lognormvariate(0, 0.1))
    assert fit.at(0.5, 8.0) == pytest.approx(factor * true(0.5, 8.0), rel=0.15)


def test_whatever_comes_it_stays_finite() -> None:
    draws = random.Random(13)
    fit, line = plane(), Line((0.02, 0.0002), 0.02)
    for _ in range(20_000):
        y = 10.0 ** draws.uniform(-9, 6) if draws.random() < 0.9 else 0.0
        fit.observe(draws.choice((0.0, 1e-3, 1e3)), draws.choice((0.0, 1.0, 1e4)), y)
        line.observe(draws.choice((0.0, 1.0, 1e4)), y, draws.random())
        assert all(0.0 <= each < math.inf for each in (fit.t0, fit.t1, fit.t2, line.t0, line.t1))
