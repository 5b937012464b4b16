"""Multinomial logistic regression with an L2 penalty.

    min over W, b of   - sum_i log p(y_i | x_i) + l2 / 2 |W|^2,      p(. | x) = softmax(x W + b)

Solved by steps of a fixed bound on the curvature (Boehning 1992): H <= 1/2 X'X for each class, so one Cholesky decomposition does for all
steps, which are accelerated (Nesterov 1983) and begin anew when they lead uphill. Features are standardised inside and W, b given back for
the features as they came, so that `l2` means the same for every encoder.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_STEPS: Final = 2_000
_TOLERANCE: Final = 1e-7


class Softmax(NamedTuple):
    """weight: (dim, classes). bias: (classes,)."""

    weight: Array
    bias: Array

    def probabilities(self, x: npt.NDArray[np.floating]) -> Array:
        """(..., classes) for x (..., dim). A row's numbers do not depend on the other rows."""
        # einsum adds in one order for any number of rows; a matrix product does not promise it.
        return softmax(np.einsum("...d,dk->...k", x.astype(np.float64), self.weight) + self.bias)


def softmax(logits: Array) -> Array:
    """exp(z) / sum exp(z) over the last dimension."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Array = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def fit(x: npt.NDArray[np.floating], y: npt.NDArray[np.integer], classes: int, l2: float) -> Softmax:
    """x: (n, dim). y: (n,) in 0..classes-1. l2 > 0, for standardised features. Raises ValueError for other shapes or numbers."""
    if x.ndim != 2 or y.shape != x.shape[:1] or not len(y) or y.min() < 0 or y.max() >= classes or not l2 > 0:
        raise ValueError("a classifier needs rows of features, a class for each of them, and l2 > 0")
    mean = x.mean(axis=0, dtype=np.float64)
    spread = x.std(axis=0, dtype=np.float64)
    spread[spread < 1e-12] = 1.0
    z = np.concatenate(((x - mean) / spread, np.ones((len(x), 1))), axis=1)
    solved = _solved(z, np.eye(classes)[y], np.append(np.full(x.shape[1], l2), 0.0))
    weight = solved[:-1] / spread[:, None]
    return Softmax(weight, solved[-1] - mean @ weight)


def _solved(z: Array, truth: Array, penalty: Array) -> Array:
    """(dim, classes): the minimum, with `penalty` for each row of it."""
    curvature = z.T @ z / 2 + np.diag(penalty)
    inverse = np.linalg.inv(curvature + 1e-9 * np.eye(len(penalty)))
    here = ahead = np.zeros((z.shape[1], truth.shape[1]))
    momentum = 1.0
    for _ in range(_STEPS):
        slope = z.T @ (softmax(z @ ahead) - truth) + penalty[:, None] * ahead
        if np.abs(slope).max() <= _TOLERANCE * len(z):
            return ahead
        there = ahead - inverse @ slope
        if float((slope * (there - here)).sum()) > 0:
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = there + (momentum - 1) / following * (there - here)
        here, momentum = there, following
    return here
