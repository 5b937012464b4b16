"""Student's t without scipy: the distribution by the incomplete beta function, its quantile by Newton's method.

P(T > t) = I_x(df / 2, 1 / 2) / 2,   x = df / (df + t^2),   t >= 0            (Abramowitz & Stegun 26.7.1)
I_x(a, b): the continued fraction 26.5.8, evaluated with Lentz's method
"""

from __future__ import annotations

from math import exp, lgamma, log, pi, sqrt
from statistics import NormalDist
from typing import Final

# Beyond it, t and the normal distribution agree to 7 digits.
_NORMAL: Final = 1e7
_TINY: Final = 1e-300


def tail(t: float, df: float) -> float:
    """P(T > t) for t >= 0."""
    if df >= _NORMAL:
        return 1.0 - NormalDist().cdf(t)
    return 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))


def quantile(p: float, df: float) -> float:
    """The t that P(T <= t) = p. p: in (0, 1). df: > 0, not only whole. Raises ValueError otherwise."""
    if not (0.0 < p < 1.0 and df > 0.0):
        raise ValueError(f"there is no quantile {p} of t with {df} degrees of freedom")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -quantile(1.0 - p, df)
    normal = NormalDist().inv_cdf(p)
    if df >= _NORMAL:
        return normal
    low, high = 0.0, max(2.0 * normal, 1.0)
    while tail(high, df) > 1.0 - p:
        low, high = high, 2.0 * high
    # Newton's step, or half of what is left where it leads out of the bracket.
    t = min(max(normal + (normal**3 + normal) / (4 * df), low), high)
    for _ in range(200):
        excess = tail(t, df) - (1.0 - p)
        low, high = (t, high) if excess > 0 else (low, t)
        step = t + excess / density(t, df)
        if not low < step < high:
            step = (low + high) / 2
        if abs(step - t) <= 1e-12 * max(1.0, t):
            return step
        t = step
    return t


def density(t: float, df: float) -> float:
    """Of T at t."""
    return exp(lgamma((df + 1) / 2) - lgamma(df / 2) - (df + 1) / 2 * log(1 + t * t / df)) / sqrt(df * pi)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), regularised; a, b > 0, 0 <= x <= 1."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, 10_000):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
