from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.best_arm import best


def exact(means: Sequence[float], sds: Sequence[float]) -> list[float]:
    """The same integral by a rule of rectangles on a grid that is fine everywhere: 100 cells for each standard deviation of each."""
    m, s = np.array(means), np.array(sds)
    edges = np.unique(np.concatenate([mean + sd * np.linspace(-8, 8, 1_601) for mean, sd in zip(m, s, strict=True)]))
    erf = np.vectorize(math.erf)

    def below(t: np.ndarray) -> np.ndarray:
        return 0.5 * (1.0 + erf((t - m[:, None]) / (s[:, None] * math.sqrt(2.0))))

    steps, middle = np.diff(below(edges), axis=1), below(0.5 * (edges[1:] + edges[:-1]))
    return [float(steps[a] @ np.prod(np.delete(middle, a, 0), 0)) for a in range(len(m))]


@pytest.mark.parametrize("case", range(24))
def test_it_is_the_integral_for_spreads_of_any_ratio(case: int) -> None:
    rng = np.random.default_rng(case)
    arms = int(rng.integers(2, 13))
    means = rng.normal(0.5, (0.001, 0.02, 0.2)[case % 3], arms)
    low, high = ((-3.0, -0.5), (-1.3, -0.7), (-8.0, 0.0), (-1.0, -1.0))[case % 4]
    sds = 10.0 ** rng.uniform(low, high, arms)

    found = best(means.tolist(), sds.tolist())

    assert sum(found) == pytest.approx(1.0, abs=1e-12)
    assert found == pytest.approx(exact(means, sds), abs=1e-3)


def test_two_quantities_have_a_closed_form() -> None:
    # P(a > b) = Phi((.6 - .5) / sqrt(.01 + .04)) = Phi(.4472) = .67264
    assert best([0.6, 0.5], [0.1, 0.2]) == pytest.approx((0.67264, 0.32736), abs=2e-4)
    assert best([-100.0, -100.5], [1e-3, 1.0]) == pytest.approx((0.69146, 0.30854), abs=2e-4)


def test_draws_agree() -> None:
    means, sds = [0.62, 0.6, 0.55, 0.7, 0.3], [0.03, 0.06, 0.2, 0.001, 0.3]
    draws = np.random.default_rng(3).normal(means, sds, (400_000, 5)).argmax(1)

    # four standard deviations of a share of 400,000 draws: at most 0.0032
    assert best(means, sds) == pytest.approx(np.bincount(draws, minlength=5) / 400_000, abs=0.0035)


@pytest.mark.parametrize(
    ("means", "sds", "expected"),
    [
        ([0.7, 0.6], [0.0, 0.0], [1.0, 0.0]),
        ([0.6, 0.6, 0.5], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]),
        ([0.5, 0.5, 0.5], [0.0, 0.0, 0.1], [0.25, 0.25, 0.5]),
        ([0.5, 0.6], [0.0, 0.1], [0.15866, 0.84134]),
        ([0.1] * 8, [0.05] * 8, [0.125] * 8),
        ([0.9, 0.1, 0.1], [1e-12, 1e-3, 0.1], [1.0, 0.0, 0.0]),
        ([3.0], [0.0], [1.0]),
        ([3.0], [2.0], [1.0]),
    ],
)
def test_spreads_of_zero_and_ties(means: list[float], sds: list[float], expected: list[float]) -> None:
    assert best(means, sds) == pytest.approx(expected, abs=1e-3)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.one_of(st.just(0.0), st.floats(1e-12, 1e3))), min_size=1, max_size=16),
)
def test_they_are_probabilities_whatever_comes(arms: list[tuple[float, float]]) -> None:
    found = best([mean for mean, _ in arms], [sd for _, sd in arms])

    assert all(0.0 <= p <= 1.0 for p in found)
    assert math.isclose(sum(found), 1.0, abs_tol=1e-12)
    assert found == best([mean for mean, _ in arms], [sd for _, sd in arms])
