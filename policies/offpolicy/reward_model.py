"""A ridge regression for each plan: what a row is predicted to be worth under every plan, by rows of other units only, or earlier ones.

    m_a   = (sum_a r + prior * m) / (n_a + prior)          m: mean over all plans; prior: rows that it counts for
    theta = (X_a' X_a + ridge I)^-1 X_a' (r - m_a)         X_a: standardised features of the rows that plan a served
    q(x, a) = m_a + x . theta_a

Units are dealt to folds by a hash of their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FOLDS: Final = 3
# Knuth's multiplicative hash, modulo 2^32.
_HASH: Final = np.uint64(2_654_435_761)


@dataclass(frozen=True)
class RewardModel:
    """center, scale: (d,), of the features. means: (p,). thetas: (p, d)."""

    center: Floats
    scale: Floats
    means: Floats
    thetas: Floats

    def predict(self, features: Floats) -> Floats:
        """(n, p) for features (n, d)."""
        predicted: Floats = self.means + ((features - self.center) * self.scale) @ self.thetas.T
        return predicted


def fitted(features: Floats, chosen: Ints, rewards: Floats, plans: int, ridge: float = 30.0, prior: float = 2.0) -> RewardModel:
    """features: (n, d). chosen: (n,). rewards: (n,), nan: left out. A plan without rows gets the mean of all; with no rows at all that is
    0."""
    known = ~np.isnan(rewards)
    features, chosen, rewards = features[known], chosen[known], rewards[known]
    n, d = features.shape
    overall = float(rewards.mean()) if n else 0.0
    counts = np.bincount(chosen, minlength=plans)
    means = (np.bincount(chosen, rewards, minlength=plans) + prior * overall) / (counts + prior)
    center: Floats = features.sum(axis=0) / max(1, n)
    deviation = np.sqrt(((features - center) ** 2).sum(axis=0) / max(1, n))
    scale = np.divide(1.0, deviation, out=np.zeros(d), where=deviation > 1e-9)
    x = (features - center) * scale
    grams = np.tile(ridge * np.eye(d), (plans, 1, 1))
    moments = np.zeros((plans, d))
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(counts)
    for plan in range(plans):
        rows = order[ends[plan] - counts[plan] : ends[plan]]
        of = x[rows]
        grams[plan] += of.T @ of
        moments[plan] = of.T @ (rewards[rows] - means[plan])
    thetas = np.asarray(np.linalg.solve(grams, moments[:, :, None])[:, :, 0], dtype=np.float64)
    return RewardModel(center, scale, means, thetas)


def cross_fitted(
    features: Floats, chosen: Ints, rewards: Floats, units: Ints, plans: int, folds: int = FOLDS, ridge: float = 30.0
) -> Floats:
    """(n, p): q of every row and plan, from a model that the row's unit had no part in."""
    fold = fold_of(units, folds)
    predicted = np.empty((len(chosen), plans))
    for each in range(folds):
        out = fold == each
        model = fitted(features[~out], chosen[~out], rewards[~out], plans, ridge)
        predicted[out] = model.predict(features[out])
    return predicted


def progressive(features: Floats, chosen: Ints, rewards: Floats, plans: int, begin: int = 64, ridge: float = 30.0) -> Floats:
    """(n, p): q of every row and plan, from a model of earlier rows only, fitted again whenever they have doubled; of the first rows, the
    nothing that is known: 0. What a confidence sequence needs, for it must be fixed before a row is seen what is predicted of it."""
    predicted = np.zeros((len(chosen), plans))
    while begin < len(chosen):
        model = fitted(features[:begin], chosen[:begin], rewards[:begin], plans, ridge)
        predicted[begin : 2 * begin] = model.predict(features[begin : 2 * begin])
        begin *= 2
    return predicted


def fold_of(units: Ints, folds: int = FOLDS) -> Ints:
    """Which fold each unit belongs to."""
    hashed = (units.astype(np.uint64) + np.uint64(1)) * _HASH % np.uint64(2**32)
    return ((hashed >> np.uint64(8)) % np.uint64(folds)).astype(np.int64)
