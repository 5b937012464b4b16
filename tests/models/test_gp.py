"""Gaussian process regression against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models import gp
from models.gp import Term

ONE = {"x": np.array([[2.0]])}


def test_one_label_under_a_linear_kernel() -> None:
    # k(x, y) = 0.5 x y; K + noise = 0.5 * 4 + 1 = 3; mean(3) = 0.5 * 2 * 3 * (6 / 3) = 6; variance(3) = 0.5 * 9 - 3^2 / 3 = 1.5
    fitted = gp.fit([Term("x", 0.5)], 1.0, ONE, np.array([6.0]))
    assert fitted.mean({"x": np.array([[3.0]])}) == pytest.approx([6.0])
    assert fitted.variance({"x": np.array([[3.0]])}) == pytest.approx([1.5])


def test_one_label_under_an_rbf() -> None:
    # k(2, 2) = 1, k(2, 4) = exp(-4 / (2 * 4)) = exp(-1/2); K + noise = 1.25
    fitted = gp.fit([Term("x", 1.0, 2.0)], 0.25, ONE, np.array([5.0]))
    far = {"x": np.array([[4.0]])}
    assert fitted.mean(far) == pytest.approx([4.0 * math.exp(-0.5)])
    assert fitted.variance(far) == pytest.approx([1 - math.exp(-1.0) / 1.25])


def test_a_prior_mean_is_what_labels_correct() -> None:
    # The label is 1 above the prior: half of that is believed (1 / (1 + 1)), on top of the prior of what is asked.
    fitted = gp.fit([Term("x", 0.25)], 1.0, ONE, np.array([3.0]), np.array([2.0]))
    assert fitted.mean(ONE, np.array([7.0])) == pytest.approx([7.5])


def test_terms_add_up_over_blocks() -> None:
    left = {"a": np.array([[1.0, 0.0]]), "b": np.array([[0.0]])}
    right = {"a": np.array([[3.0, 4.0], [0.0, 1.0]]), "b": np.array([[1.0], [0.0]])}
    terms = [Term("a", 2.0), Term("b", 1.0, 1.0)]
    assert gp.gram(terms, left, right)[0] == pytest.approx([6.0 + math.exp(-0.5), 1.0])
    assert gp.diagonal(terms, right) == pytest.approx([2.0 * 25 + 1.0, 2.0 * 1 + 1.0])


def test_it_agrees_with_bayesian_linear_regression() -> None:
    random = np.random.default_rng(0)
    x, y, asked = random.standard_normal((30, 4)), random.standard_normal(30), random.standard_normal((5, 4))
    fitted = gp.fit([Term("x", 0.7)], 0.3, {"x": x}, y)
    precision = x.T @ x / 0.3 + np.eye(4) / 0.7
    weights = np.linalg.solve(precision, x.T @ y / 0.3)
    assert fitted.mean({"x": asked}) == pytest.approx(asked @ weights)
    assert fitted.variance({"x": asked}) == pytest.approx(np.einsum("ij,jk,ik->i", asked, np.linalg.inv(precision), asked))


def test_what_cannot_be_fitted_is_said() -> None:
    with pytest.raises(ValueError, match="noise"):
        gp.fit([Term("x", 1.0)], 0.0, ONE, np.array([1.0]))
    with pytest.raises(ValueError, match="at least one term"):
        gp.fit([], 1.0, ONE, np.array([1.0]))
