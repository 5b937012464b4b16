"""How well a score tells the prompts on which the strong model is worth its price (RouteLLM, Ong et al. 2024).

    c(k)     strong minus weak, summed over the k prompts of the highest scores, over the same sum over all n
    APGR     area under c over k / n in [0, 1], by trapezoids; 0.5: no better than chance
    CPT(x)   least share k / n of strong calls with c(k) >= x

Prompts of the same score stay in the order of the set, so a score should have few ties.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def recovered(scores: Array, weak: Array, strong: Array) -> Array:
    """c(0) ... c(n), (n + 1,). Raises ValueError where the strong model gains nothing."""
    gain = strong - weak
    total = float(gain.sum())
    if total <= 0:
        raise ValueError("the strong model is no better than the weak one")
    order = np.argsort(-scores, kind="stable")
    curve: Array = np.concatenate([[0.0], np.cumsum(gain[order])]) / total
    return curve


def apgr(scores: Array, weak: Array, strong: Array) -> float:
    """Average performance gap recovered."""
    curve = recovered(scores, weak, strong)
    return float((curve[1:] + curve[:-1]).mean() / 2)


def cpt(scores: Array, weak: Array, strong: Array, share: float) -> float:
    """Call-performance threshold: the least share of strong calls that recovers `share` of the gap."""
    curve = recovered(scores, weak, strong)
    return float(np.flatnonzero(curve >= share - 1e-12)[0] / (len(curve) - 1))


def cost_at(scores: Array, weak: Array, strong: Array, quality: float, weak_price: float) -> float:
    """Cost, in that of always the strong model, of the fewest strong calls that reach `quality` of its accuracy.

    weak_price: a weak call's over a strong call's.
    """
    order = np.argsort(-scores, kind="stable")
    reached = np.concatenate([[0.0], np.cumsum((strong - weak)[order])]) + weak.sum()
    share = float(np.flatnonzero(reached >= quality * strong.sum() - 1e-9)[0] / len(scores))
    return share + (1 - share) * weak_price


def auroc(scores: Array, labels: npt.NDArray[np.bool_]) -> float:
    """Probability that a positive has a higher score than a negative; ties count half. NaN where one kind is missing."""
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # mean rank of equal scores, from 1
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def paired(scores: Array, other: Array, weak: Array, strong: Array, resamples: int = 300, seed: int = 0) -> tuple[float, float]:
    """95 % interval of APGR(scores) - APGR(other) over the same bootstrap resamples of the prompts, by percentiles."""
    counts = _resampled(len(scores), resamples, seed)
    differences = _resampled_apgr(scores, weak, strong, counts) - _resampled_apgr(other, weak, strong, counts)
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)


def _resampled(rows: int, resamples: int, seed: int) -> Array:
    """How often each row is drawn in each resample, (resamples, rows)."""
    random = np.random.default_rng(seed)
    return np.stack([np.bincount(random.integers(0, rows, rows), minlength=rows) for _ in range(resamples)]).astype(np.float64)


def _resampled_apgr(scores: Array, weak: Array, strong: Array, counts: Array) -> Array:
    """APGR of each resample. A prompt that was drawn m times is m steps of the curve, all of one slope."""
    order = np.argsort(-scores, kind="stable")
    times = counts[:, order]
    curve = np.cumsum(times * (strong - weak)[order], axis=1)
    area = (times * curve).sum(axis=1) - (times * times * (strong - weak)[order]).sum(axis=1) / 2
    found: Array = area / (curve[:, -1] * len(scores))
    return found
