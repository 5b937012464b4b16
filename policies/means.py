"""Mean quality of each plan, with forgetting: sums that replicas may add, in any order.

    weight of an observation of time t            w 2^((t - L) / H)         w: 1 / labelling probability, H: half-life, L: landmark
    evidence in label-equivalents                 n = (sum w d)^2 / (sum w^2 d),  d = 2^((t - now) / H)       (Kish 1965)
    mean                                          (s m + n q) / (s + n)     q: weighted mean; m, s: prior mean and its strength in labels
    interval                                      mean +- 1.96 sqrt(mean (1 - mean) / (s + n + 1)), within [0, 1]: that of a Beta

The sums are decayed forward (policies.decay).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.decay import moved, weight
from policies.values.outcome import Observation

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Means:
    """All (plans,): number: sum of w d. squares: sum of w^2 d. gained: sum of w d quality. landmark, latest (of the newest observation):
    seconds since 1970."""

    number: Floats
    squares: Floats
    gained: Floats
    landmark: float
    latest: float


class Estimate(NamedTuple):
    """mean: of a plan. low, high: the ends of its interval. evidence: what is behind it, in labels."""

    mean: float
    low: float
    high: float
    evidence: float


def nothing(plans: int) -> Means:
    """No observation yet."""
    return Means(np.zeros(plans), np.zeros(plans), np.zeros(plans), 0.0, 0.0)


def folded(means: Means, observations: Sequence[Observation], plans: Mapping[str, int], half_life_s: float) -> Means:
    """The means, these observations in them. plans: index by name; observations of others are passed over."""
    known = [each for each in observations if each.plan in plans]
    if not known:
        return means
    latest = max(means.latest, max(each.at for each in known))
    landmark, halvings = moved(means.landmark, latest, half_life_s)
    number, squares, gained = (np.ldexp(each, halvings) for each in (means.number, means.squares, means.gained))
    for each in known:
        index, decay = plans[each.plan], weight(each.at, landmark, half_life_s)
        number[index] += each.count * each.weight * decay
        squares[index] += each.count * each.weight**2 * decay
        gained[index] += each.gain * decay
    return Means(number, squares, gained, landmark, latest)


def estimates(means: Means, now: float, half_life_s: float, prior_mean: float, prior_strength: float) -> list[Estimate]:
    """What is thought of each plan at a time. What was taken back leaves rounding behind, which counts for nothing."""
    age = weight(min(means.landmark, now), now, half_life_s)
    found = []
    for number, squares, gained in zip(means.number.tolist(), means.squares.tolist(), means.gained.tolist(), strict=True):
        known = number > 1e-9 and squares > 0.0
        evidence = age * number * number / squares if known else 0.0
        quality = min(1.0, max(0.0, gained / number)) if known else 0.0
        mean = (prior_strength * prior_mean + evidence * quality) / (prior_strength + evidence)
        found.append(Estimate(mean, *interval(mean, prior_strength + evidence), evidence))
    return found


def interval(mean: float, evidence: float) -> tuple[float, float]:
    """95 % of a Beta with this mean and evidence, by its standard deviation, within [0, 1]."""
    spread = 1.96 * math.sqrt(max(0.0, mean * (1.0 - mean)) / (evidence + 1.0))
    return max(0.0, mean - spread), min(1.0, mean + spread)
