"""Multinomial logistic regression: the conditions that its minimum fulfils, and cases with a known one."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from models.encoders.softmax import fit, softmax


def test_softmax_by_hand() -> None:
    assert softmax(np.array([0.0, log(2), log(5)])).tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert softmax(np.array([[1e4, 1e4], [-1e4, 0.0]])).tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_features_that_say_nothing_leave_the_shares() -> None:
    fitted = fit(np.ones((10, 3)), np.array([0] * 5 + [1] * 3 + [2] * 2), 3, 1.0)

    assert fitted.probabilities(np.array([1.0, 1.0, 1.0])).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=1e-5)
    assert fitted.weight.tolist() == pytest.approx(np.zeros((3, 3)), abs=1e-9)


def test_one_feature_with_two_values_by_hand() -> None:
    """x = +-1, three of four right on either side; already standardised. The logit between the two classes is 2 u x, and u solves
    4 (p - 3/4) + l2 u / 1 = 0 with p = 1 / (1 + exp(-2 u)), by the symmetry W = (-u, u)."""
    x = np.array([[-1.0]] * 4 + [[1.0]] * 4)
    y = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    l2 = 0.5

    low, high = 0.0, 5.0
    for _ in range(80):
        u = (low + high) / 2
        # d/du of the loss on W[1]: 8 observations, half on each side.
        slope = 8 * (1 / (1 + exp(-2 * u)) - 0.75) + l2 * u
        low, high = (low, u) if slope > 0 else (u, high)

    assert fit(x, y, 2, l2).weight.tolist() == pytest.approx(np.array([[-u, u]]), abs=1e-5)


@pytest.mark.parametrize("l2", [0.1, 10.0])
def test_the_slope_is_nothing_at_the_minimum(l2: float) -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(6, 4))
    x = rng.normal(size=(400, 6)) * np.array([1, 10, 0.1, 1, 1, 1]) + 3
    y = np.array([rng.choice(4, p=softmax(row)) for row in (x - 3) / x.std(axis=0) @ truth])

    fitted = fit(x, y, 4, l2)

    p = fitted.probabilities(x)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    missed = p - np.eye(4)[y]
    assert np.abs(z.T @ missed + l2 * fitted.weight * x.std(axis=0)[:, None]).max() < 1e-3
    assert np.abs(missed.sum(axis=0)).max() < 1e-3
    assert p.sum(axis=1).tolist() == pytest.approx([1.0] * 400)


def test_a_rows_probabilities_do_not_depend_on_others() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 64)).astype(np.float32)
    fitted = fit(x, rng.integers(0, 14, 300), 14, 5.0)

    together = fitted.probabilities(x)

    assert [row.tobytes() for row in together] == [fitted.probabilities(row).tobytes() for row in x]


@pytest.mark.parametrize(
    ("x", "y", "l2"),
    [
        (np.ones((2, 1)), np.array([0]), 1.0),
        (np.ones(2), np.array([0, 1]), 1.0),
        (np.ones((2, 1)), np.array([0, 2]), 1.0),
        (np.ones((2, 1)), np.array([-1, 1]), 1.0),
        (np.ones((0, 1)), np.array([], dtype=int), 1.0),
        (np.ones((2, 1)), np.array([0, 1]), 0.0),
    ],
)
def test_what_cannot_be_fitted(x: np.ndarray, y: np.ndarray, l2: float) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match="a classifier needs"):
        fit(x, y, 2, l2)
