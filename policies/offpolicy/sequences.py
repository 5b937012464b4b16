"""Intervals and tests that may be looked at after every observation, and acted upon, without losing their level.

A confidence sequence covers at all times together with probability >= 1 - alpha; an e-process exceeds 1 / alpha ever, under its null,
with probability <= alpha (Ville). All are frozen values: `state.update(values)` is the next state, `state.interval(alpha)` the interval
now. Every one is a mixture over fixed bets, so a state is a handful of sums: neither the order nor the batches matter, states of two
processes add up, and an observation is taken back by counting it -1 times.

Betting      observations in [low, high] with one mean, rescaled to z in [0, 1] (Waudby-Smith and Ramdas 2023, hedged capital)
                 K+(m) = mean_j prod_i (1 + theta_j (z_i / m - 1)),   K-(m) the same of 1 - z and 1 - m;   {m: max(K+, K-) < 2 / alpha}
Importance   E[w r], r in [0, 1], w >= 0 with mean 1 and no known bound (Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro 2022)
                 lower end: K+ of w r; upper end: 1 - lower end of w (1 - r)
Moments      running average of the conditional means, whatever they do, of observations within +-scale (Fan, Grama and Liu 2015;
             Howard, Ramdas, McAuliffe and Sekhon 2021, with lines instead of a curve)
                 |sum_i x_i - mu_i| < min_j (log(2 J / alpha) + psi(l_j) sum_i x_i^2 / scale^2) / l_j * scale,   psi(l) = -log(1 - l) - l
Gaussian     the same of observations whose noise is sub-Gaussian with a known sigma (Robbins 1970)
                 |sum_i x_i - mu_i| < sqrt((n sigma^2 + rho) log((n sigma^2 + rho) / (rho alpha^2)))

z is spread over the two nearest knots of a grid in proportion, which keeps its mean; the logarithm is concave, so the capital is never
overstated by it, and the level stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Values = Sequence[float] | Array

KNOTS: Array = np.linspace(0.0, 1.0, 129)
WIDE_KNOTS: Array = np.concatenate(([0.0], 2.0 ** np.arange(-8.0, 18.125, 0.125)))
BETS: Array = 0.9 * 2.0 ** (-np.arange(20.0) / 2)
LINES: tuple[tuple[float, float], ...] = tuple((2.0**-j, -math.log1p(-(2.0**-j)) - 2.0**-j) for j in range(1, 15))


@dataclass(frozen=True)
class Betting:
    """Observations within [low, high]. histogram: (knots,), how many lie at each."""

    histogram: Array
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def empty(cls, low: float = 0.0, high: float = 1.0) -> Betting:
        """Nothing was observed."""
        return cls(np.zeros(len(KNOTS)), low, high)

    def update(self, values: Values, counts: Values | float = 1.0) -> Betting:
        """values: (n,). counts: how often each counts, -1 to take it back. Raises ValueError for what is out of range."""
        z = (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
        return replace(self, histogram=_spread(self.histogram, KNOTS, z, counts))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Where the mean is."""
        level = math.log(2.0 / alpha)
        span = self.high - self.low
        low = _lowest(KNOTS, self.histogram, level)
        high = 1.0 - _lowest(KNOTS, self.histogram[::-1], level)
        return self.low + span * low, self.low + span * max(low, high)

    def above(self, mean: float) -> float:
        """log e-value against: every conditional mean <= `mean`, which lies between low and high."""
        return _capital(KNOTS, self.histogram, (mean - self.low) / (self.high - self.low))

    def below(self, mean: float) -> float:
        """log e-value against: every conditional mean >= `mean`, which lies between low and high."""
        return _capital(KNOTS, self.histogram[::-1], (self.high - mean) / (self.high - self.low))


@dataclass(frozen=True)
class Importance:
    """Rewards weighted by importance. won: (wide knots,), of w r. lost: of w (1 - r)."""

    won: Array
    lost: Array

    @classmethod
    def empty(cls) -> Importance:
        """Nothing was observed."""
        return cls(np.zeros(len(WIDE_KNOTS)), np.zeros(len(WIDE_KNOTS)))

    def update(self, weights: Values, rewards: Values, counts: Values | float = 1.0) -> Importance:
        """weights: (n,), target's / logged probability. rewards: (n,), in [0, 1]. Raises ValueError for what is out of range."""
        w = np.asarray(weights, dtype=np.float64)
        r = np.asarray(rewards, dtype=np.float64)
        if not np.all((r >= 0) & (r <= 1)):
            raise ValueError("a reward is not within [0, 1]")
        # What lies beyond the last knot is counted as lying there: that, too, only understates the capital.
        won, lost = np.minimum(w * r, WIDE_KNOTS[-1]), np.minimum(w * (1.0 - r), WIDE_KNOTS[-1])
        return Importance(_spread(self.won, WIDE_KNOTS, won, counts), _spread(self.lost, WIDE_KNOTS, lost, counts))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Where the target's value is."""
        level = math.log(2.0 / alpha)
        low = _lowest(WIDE_KNOTS, self.won, level)
        return low, max(low, 1.0 - _lowest(WIDE_KNOTS, self.lost, level))

    def above(self, value: float) -> float:
        """log e-value against: the target's value is always <= `value`, which lies between 0 and 1."""
        return _capital(WIDE_KNOTS, self.won, value)

    def below(self, value: float) -> float:
        """log e-value against: the target's value is always >= `value`, which lies between 0 and 1."""
        return _capital(WIDE_KNOTS, self.lost, 1.0 - value)


@dataclass(frozen=True)
class Moments:
    """Observations within +-scale; the nearer to 0, the narrower. n: how many. total: their sum. squares: the sum of their squares."""

    n: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    scale: float = 1.0

    def update(self, values: Values, counts: Values | float = 1.0) -> Moments:
        """values: (n,). counts: how often each counts, -1 to take it back. Raises ValueError for what is out of range."""
        x = np.asarray(values, dtype=np.float64)
        if not np.all(np.abs(x) <= self.scale):
            raise ValueError(f"a value is not within +-{self.scale:g}")
        c = np.broadcast_to(np.asarray(counts, dtype=np.float64), x.shape)
        return replace(self, n=self.n + float(c.sum()), total=self.total + float(c @ x), squares=self.squares + float(c @ (x * x)))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Where the running average of the conditional means is."""
        if self.n <= 0:
            return -self.scale, self.scale
        reach = radius(self.squares, alpha, self.scale)
        low, high = (self.total - reach) / self.n, (self.total + reach) / self.n
        return min(max(low, -self.scale), self.scale), max(min(high, self.scale), -self.scale)


@dataclass(frozen=True)
class Gaussian:
    """Observations with sub-Gaussian noise. n: how many. total: their sum. rho: about the variance of the sum where it is narrowest."""

    n: float = 0.0
    total: float = 0.0
    sigma: float = 0.5
    rho: float = 25.0

    def update(self, values: Values, counts: Values | float = 1.0) -> Gaussian:
        """values: (n,). counts: how often each counts, -1 to take it back."""
        x = np.asarray(values, dtype=np.float64)
        c = np.broadcast_to(np.asarray(counts, dtype=np.float64), x.shape)
        return replace(self, n=self.n + float(c.sum()), total=self.total + float(c @ x))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Where the running average of the conditional means is."""
        if self.n <= 0:
            return -math.inf, math.inf
        variance = self.n * self.sigma**2 + self.rho
        reach = math.sqrt(variance * math.log(variance / (self.rho * alpha**2)))
        return (self.total - reach) / self.n, (self.total + reach) / self.n


def radius(squares: float, alpha: float, scale: float = 1.0) -> float:
    """How far a sum may be from the sum of its conditional means, either way. squares: sum of its terms' squares, each <= scale^2."""
    variance = max(squares, 0.0) / scale**2
    level = math.log(2.0 * len(LINES) / alpha)
    return scale * min((level + psi * variance) / bet for bet, psi in LINES)


def share_evidence(hits: float, n: float, share: float, strength: float = 10.0) -> float:
    """log e-value against: each of n independent observations is a hit with probability `share`.

    log [B(s p + k, s (1 - p) + n - k) / B(s p, s (1 - p))] - k log p - (n - k) log(1 - p),   p: share, s: strength, k: hits

    The alternative is a Beta around the share, as strong as `strength` observations (Lindon and Malek 2022).
    """
    a, b = strength * share, strength * (1.0 - share)
    mixture = _log_beta(a + hits, b + n - hits) - _log_beta(a, b)
    return mixture - hits * math.log(share) - (n - hits) * math.log1p(-share)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _spread(histogram: Array, knots: Array, values: Array, counts: Values | float) -> Array:
    if not np.all((values >= knots[0]) & (values <= knots[-1])):
        raise ValueError("a value is out of range")
    c = np.broadcast_to(np.asarray(counts, dtype=np.float64), values.shape)
    right = np.clip(np.searchsorted(knots, values, side="right"), 1, len(knots) - 1)
    part = (values - knots[right - 1]) / (knots[right] - knots[right - 1])
    size = len(knots)
    return histogram + np.bincount(right - 1, c * (1.0 - part), size) + np.bincount(right, c * part, size)


def _capital(knots: Array, histogram: Array, mean: float) -> float:
    """log K+(mean)."""
    used = histogram != 0.0
    gains = np.log1p(BETS[:, None] * (knots[used] / mean - 1.0)) @ histogram[used]
    top = float(gains.max())
    return top + math.log(float(np.exp(gains - top).mean()))


def _lowest(knots: Array, histogram: Array, level: float) -> float:
    """The largest mean at which the capital, which falls with it, is still above the level: all smaller ones are excluded."""
    low, high = 1e-9, 1.0 - 1e-9
    if not np.any(histogram) or _capital(knots, histogram, low) < level:
        return 0.0
    if _capital(knots, histogram, high) >= level:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _capital(knots, histogram, middle) >= level else (low, middle)
    return low
