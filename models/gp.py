"""Gaussian process regression in closed form (Rasmussen and Williams 2006, algorithm 2.1), with a sum of simple kernels.

    k(x, y) = sum over terms of   weight * exp(-|x_b - y_b|^2 / (2 length^2))      RBF over the block b of the features
                                  weight * x_b . y_b                               linear, where a term has no length
    L = cholesky(K + noise I);  alpha = K^-1 (y - prior)
    mean(x) = prior(x) + k(x, X) alpha;   variance(x) = k(x, x) - |L^-1 k(X, x)|^2

One fit costs n^3 / 3 multiplications, so n is to stay below a few thousand. x_b: (n, d_b), any scale: weights and lengths are in its units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Blocks = Mapping[str, npt.NDArray[np.floating]]


@dataclass(frozen=True)
class Term:
    """One kernel of the sum. block: of the features. length: of an RBF; None: linear."""

    block: str
    weight: float
    length: float | None = None


@dataclass(frozen=True)
class Fitted:
    """A posterior. inputs: the blocks that it was fitted on; alpha: (n,); cholesky: (n, n), lower."""

    terms: tuple[Term, ...]
    inputs: Mapping[str, Floats]
    alpha: Floats
    cholesky: Floats

    def mean(self, inputs: Blocks, prior: Floats | float = 0.0) -> Floats:
        """Expected target of each input, (m,). prior: its prior mean there."""
        found: Floats = prior + gram(self.terms, inputs, self.inputs) @ self.alpha
        return found

    def variance(self, inputs: Blocks) -> Floats:
        """Posterior variance of the function, without the noise, (m,)."""
        cross = gram(self.terms, self.inputs, inputs)
        found: Floats = np.maximum(diagonal(self.terms, inputs) - (np.linalg.solve(self.cholesky, cross) ** 2).sum(axis=0), 0.0)
        return found


def fit(terms: Sequence[Term], noise: float, inputs: Blocks, targets: Floats, prior: Floats | float = 0.0) -> Fitted:
    """The posterior after targets (n,) at inputs. noise: variance of a target around the function. prior: the prior mean at the inputs.

    Raises ValueError for a noise that is not positive.
    """
    if not noise > 0:
        raise ValueError("the noise has to be positive")
    used = {term.block: np.asarray(inputs[term.block], dtype=np.float64) for term in terms}
    kernel = gram(terms, used, used)
    kernel[np.diag_indices_from(kernel)] += noise
    lower: Floats = np.linalg.cholesky(kernel).astype(np.float64)
    alpha: Floats = np.linalg.solve(lower.T, np.linalg.solve(lower, targets - prior)).astype(np.float64)
    return Fitted(tuple(terms), used, alpha, lower)


def gram(terms: Sequence[Term], left: Blocks, right: Blocks) -> Floats:
    """k between each of the left and each of the right, (m, n)."""
    total: Floats | None = None
    products: dict[str, Floats] = {}
    for term in terms:
        a, b = (np.asarray(side[term.block], dtype=np.float64) for side in (left, right))
        if term.block not in products:
            products[term.block] = a @ b.T
        inner = products[term.block]
        if term.length is None:
            part = term.weight * inner
        else:
            squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * inner
            part = term.weight * np.exp(np.maximum(squares, 0.0) / (-2 * term.length**2))
        total = part if total is None else total + part
    if total is None:
        raise ValueError("a kernel has at least one term")
    return total


def diagonal(terms: Sequence[Term], inputs: Blocks) -> Floats:
    """k of each input with itself, (m,)."""
    parts = [
        term.weight * (np.asarray(inputs[term.block], dtype=np.float64) ** 2).sum(axis=1)
        if term.length is None
        else np.full(len(inputs[term.block]), term.weight)
        for term in terms
    ]
    total: Floats = np.sum(parts, axis=0)
    return total
