"""How many samples a scorer needs, after OptScale (Wang et al. 2026, arXiv 2506.22376): stop at the first score that is good enough.

A question's scores reach `level` with chance q, so the best of N does with chance 1 - (1 - q)^N, and a confidence takes

    N* = ceil( ln(1 - confidence) / ln(1 - q) )

OptScale draws N* samples, with q from a normal on [0, 1] fitted to the first few scores. Here the first score that reaches the level ends
it, which alone saves most of the samples and costs no confidence; N* only says when to stop trying. For that, q is the mean of a Beta(a, b)
from calibration questions after `PEEKS` samples that all fell short, q = a / (a + b + PEEKS): counts are right whatever scores look like
between 0 and 1, a fitted shape is not. With five of them, questions within reach of the cap get the confidence but for a point at most, on
average, whatever the Beta (a of 0.2 to 5, mean of 0.03 to 0.6); with three, but for 1.6 points. It is taken once: N* of a mean that falls
with every failure would run away from the count. Samples that are not worth their tokens, hazard x worth < tokens, end it, too (hazard.py).

A score is not a chance to be right: choose the level where answers are right often enough, on data of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from policies.pricing.hazard import Prior, fit, worthwhile

MOST: Final = 64
PEEKS: Final = 5


def samples_needed(chance: float, confidence: float) -> float:
    """N*: samples until one of them reaches the level with this confidence; infinite when none ever does. confidence: below 1."""
    if chance <= 0.0:
        return math.inf
    if chance >= 1.0:
        return 1.0
    return float(max(1, math.ceil(math.log1p(-confidence) / math.log1p(-chance) - 1e-9)))


def calibrated(scores: Iterable[Sequence[float]], level: float) -> Prior:
    """The prior of q, from the scores of each calibration question. Raises ValueError when there are none."""
    return fit([(len(each), sum(score >= level for score in each)) for each in scores])


@dataclass(frozen=True, slots=True)
class FirstGood:
    """Stops at the first score of at least `level`, and at N*. confidence: that a question within reach of `cap` samples gets such a score;
    prior: of q, at that level; worth, least: as in FirstPass; first, then: samples at once."""

    level: float
    prior: Prior
    confidence: float = 0.9
    worth: float = 0.0
    least: float = 0.0
    first: int = 1
    then: int = 1
    cap: int = MOST

    @property
    def limit(self) -> int:
        """N*, at most the cap."""
        return int(min(float(self.cap), samples_needed(self.prior.hazard(PEEKS), self.confidence)))

    def more(self, scores: Sequence[float], tokens: float = 0.0) -> int:
        """How many samples to draw now, 0: stop. scores: so far; tokens: of all of them."""
        n = len(scores)
        if n and (max(scores) >= self.level or not worthwhile(self.prior.hazard(n), n, tokens, self.worth, self.least)):
            return 0
        return min(self.first - n if n < self.first else self.then, max(0, self.limit - n))
