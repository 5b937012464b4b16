"""How many tokens a plan answers with, learned from its answers.

Lengths are about log-normal: their logarithms have a mean m and a variance s^2, both decayed (an answer counts half after HALF_LIFE more),
and, until there are answers, a prior's. What is expected of an answer that may have c tokens at most is the mean of what is cut off there,

    E min(o, c) = exp(m + s^2 / 2) F((ln c - m - s^2) / s) + c F((m - ln c) / s)        F: the normal distribution function

and exp(m + s^2 / 2) without a cap. An answer that its cap has cut off was going to be longer: it counts as the mean of what is longer,
m + s f(z) / F(-z) with z = (ln c - m) / s, so that short caps do not make a plan look terse (the E step for censored data).
One that lies further from m than `_FAR` s counts as one that lies so far.
"""

from __future__ import annotations

import math
from typing import Final

HALF_LIFE: Final = 200.0
"""Answers after which one counts half."""

_RATE: Final = 1.0 - 2.0 ** (-1.0 / HALF_LIFE)
_TOKENS: Final = 200.0
_DEVIATION: Final = 1.0
# The prior's worth, in answers. Between bounds: of few answers the variance is hardly known, and the mean depends on it.
_PRIOR: Final = 4.0
_LEAST: Final = 0.05
_MOST: Final = 1.5
_FAR: Final = 3.0
_ROOT: Final = math.sqrt(0.5)
_NORMAL: Final = 1.0 / math.sqrt(2.0 * math.pi)


class OutputLength:
    """Of one plan. tokens: what is expected before its first answer. count: answers that it has learned from."""

    __slots__ = ("_deviation", "_mean", "_variance", "count")

    def __init__(self, tokens: float = _TOKENS) -> None:
        self.count = 0
        self._mean = math.log(max(1.0, tokens)) - _DEVIATION**2 / 2
        self._variance = _DEVIATION**2
        self._deviation = _DEVIATION

    def observe(self, tokens: int, max_tokens: int | None = None) -> None:
        """An answer that ended. max_tokens: what it might have had at most; an answer of as many was cut off. None of 0 tokens counts."""
        if tokens < 1:
            return
        found = math.log(tokens)
        mean, s = self._mean, self._deviation
        spread = 0.0
        if max_tokens is not None and tokens >= max_tokens:
            found, spread = _longer(found, mean, s)
        self.count += 1
        rate = max(_RATE, 1.0 / (self.count + _PRIOR))
        far = _FAR * s
        off = min(max(found - mean, -far), far)
        self._mean = mean + rate * off
        variance = self._variance = (1.0 - rate) * (self._variance + rate * off * off) + rate * spread
        self._deviation = min(max(math.sqrt(variance), _LEAST), _MOST)

    def expected(self, max_tokens: int | None = None) -> float:
        """Tokens of the next answer, on average; 1 at least, `max_tokens` at most."""
        mean, s = self._mean, self._deviation
        whole = math.exp(mean + 0.5 * s * s)
        if max_tokens is None:
            return whole if whole > 1.0 else 1.0
        if max_tokens <= 1:
            return 1.0
        z = (math.log(max_tokens) - mean) / s
        cut = whole * 0.5 * math.erfc((s - z) * _ROOT) + max_tokens * 0.5 * math.erfc(z * _ROOT)
        return min(max(cut, 1.0), float(max_tokens))


def _longer(cap: float, mean: float, s: float) -> tuple[float, float]:
    """Mean and variance of what is above `cap`, of a normal distribution."""
    z = (cap - mean) / s
    if z > 5.0:  # hardly anything is, and it is right behind
        return cap, 0.0
    hazard = _NORMAL * math.exp(-0.5 * z * z) / (0.5 * math.erfc(z * _ROOT))
    return mean + s * hazard, s * s * max(0.0, 1.0 + z * hazard - hazard * hazard)
