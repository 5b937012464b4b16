"""How many requests a promotion needs, before it is begun.

The gain of a candidate is estimated from the log of the current policy (DR, row by row). With residual variance s2 of a label, a share d of
requests on which the two differ, and the probability p with which the candidate's choice is drawn there (floor / plans, or a canary's
share), a row's part of the gain has the variance

    V = s2 / l * (d (1 - p) / p + (1 - d) (1 - p0) / p0)         p0 = 1 - p (plans - 1): where they agree; l: labelled share
    s2 = success (1 - success) (1 - explained)

fixed n    one look, at the end:    n = (z(1 - alpha / 2) + z(power))^2 V / gain^2
any time   looked at after every request, with the bound that promotions go by (sequences.Moments): the least n with
           gain - radius(n (V + gain^2), alpha, scale) / n >= z(power) sqrt(V / n),   scale: the most that one row's part can be
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.offpolicy.sequences import radius

Floats = npt.NDArray[np.float64]

_ENDLESS: Final = 10**12


@dataclass(frozen=True)
class Traffic:
    """What is assumed of the requests. floor: total share of exploration. plans: that may serve. share: probability of the candidate's
    choice where it differs; None: floor / plans. success: of answers. explained: share of a label's variance that a reward model predicts.
    differs: share of requests on which candidate and current choose differently. labelled: share of requests that get a label."""

    floor: float = 0.1
    plans: int = 2
    share: float | None = None
    success: float = 0.7
    explained: float = 0.0
    differs: float = 1.0
    labelled: float = 1.0


@dataclass(frozen=True)
class Need:
    """gain: to be found. fixed: requests for a test with one look. anytime: for one that may be looked at after every request. half_width:
    of the interval after `fixed` requests."""

    gain: float
    fixed: int
    anytime: int
    half_width: float


def variance(traffic: Traffic) -> float:
    """V of these assumptions. Raises ValueError for such that no log could show: no exploration, or no labels."""
    p = _share(traffic)
    agree = 1.0 - p * (traffic.plans - 1) if traffic.share is None else 1.0
    if not (0.0 < traffic.labelled <= 1.0 and 0.0 <= traffic.differs <= 1.0 and 0.0 <= traffic.explained < 1.0 and 0 < traffic.success < 1):
        raise ValueError("shares must lie between 0 and 1; a success of 0 or 1 leaves nothing to find")
    residual = traffic.success * (1.0 - traffic.success) * (1.0 - traffic.explained)
    return residual / traffic.labelled * (traffic.differs * (1 - p) / p + (1 - traffic.differs) * (1 - agree) / agree)


def logged_variance(terms: Floats) -> float:
    """V as it was in a log. terms: each row's part of the gain (estimators.differences)."""
    return float(np.var(terms, ddof=1))


def scale(traffic: Traffic) -> float:
    """The most that a row's part of the gain can be, either way: 1 by the reward model, and the largest weight of a label."""
    return 1.0 + max(1.0, 1.0 / _share(traffic) - 1.0) / traffic.labelled


def needs(v: float, most: float, gains: Sequence[float], alpha: float = 0.05, power: float = 0.8) -> tuple[Need, ...]:
    """For each gain: requests until it is found with probability `power`, when false alarms are at most alpha. v: V. most: see scale()."""
    return tuple(_need(v, most, gain, alpha, power) for gain in gains)


def _share(traffic: Traffic) -> float:
    if traffic.plans < 2:
        raise ValueError("there must be at least 2 plans to choose from")
    share = traffic.share if traffic.share is not None else traffic.floor / traffic.plans
    if not 0.0 < share <= 1.0:
        raise ValueError("without exploration, the choices of another policy never occur: the floor, or the share, must be above 0")
    return share


def _need(v: float, most: float, gain: float, alpha: float, power: float) -> Need:
    if not (gain > 0 and 0 < alpha < 1 and 0 < power < 1):
        raise ValueError("the gain must be above 0, and alpha and the power between 0 and 1")
    normal = NormalDist()
    found, sure = normal.inv_cdf(1 - alpha / 2), normal.inv_cdf(power)
    fixed = max(1, ceil((found + sure) ** 2 * v / gain**2))
    return Need(gain, fixed, _anytime(v, most, gain, alpha, sure), found * sqrt(v / fixed))


def _anytime(v: float, most: float, gain: float, alpha: float, sure: float) -> int:
    """The least n at which the lower bound is above 0 with the power, by doubling and halving."""

    def enough(n: int) -> bool:
        return gain - radius(n * (v + gain**2), alpha, most) / n >= sure * sqrt(v / n)

    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > _ENDLESS:
            raise ValueError(f"a gain of {gain:g} cannot be found within {_ENDLESS:.0e} requests")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
