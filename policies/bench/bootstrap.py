"""Intervals by the bootstrap over questions: a question is drawn with all its samples and orders, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

RESAMPLES: Final = 1_000
_LEVELS: Final = (0.025, 0.975)
_CHUNK: Final = 2_000_000


@dataclass(frozen=True)
class Interval:
    """A value, and where 95 % of the resamples lie."""

    value: float
    low: float
    high: float


def interval(value: float, resamples: Array) -> Interval:
    """Of a value whose resamples are known."""
    low, high = np.quantile(resamples, _LEVELS)
    return Interval(value, float(low), float(high))


def mean(values: Array) -> Interval:
    """Of a value per question."""
    return interval(float(values.mean()), means(values))


def means(values: Array, seed: int = 0) -> Array:
    """Means of resamples. Equal values are counted rather than drawn one by one, which is the same."""
    distinct, counts = np.unique(values, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(values), counts / len(values), size=RESAMPLES)
    found: Array = drawn @ distinct / len(values)
    return found


def ratio(above: Array, below: Array) -> Interval:
    """Of a sum over questions to another one."""
    rng, n = np.random.default_rng(0), len(above)
    found = []
    for _ in range(0, RESAMPLES, rows := max(1, min(RESAMPLES, _CHUNK // n))):
        drawn = rng.poisson(1.0, (rows, n))  # as good as drawing n of n, and far faster
        found.append((drawn @ above) / np.maximum(drawn @ below, 1e-300))
    return interval(float(above.sum() / below.sum()), np.concatenate(found))
