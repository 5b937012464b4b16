"""When to give up on a question that an exact verifier may pass, or a scorer find good enough: by the hazard.

The pass rate q of questions is Beta(a, b), fitted to pass counts. After n samples of which s passed, the next one passes with chance

    hazard = (a + s) / (a + b + n)

With an exact verifier one pass is the end, so all questions that go on after n failures are alike, and the optimal rule without knowledge
of the question is: stop at the first pass, and give up when the hazard times the value of a pass falls below what a sample costs. As the
hazard only falls, that is a cap on the number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST: Final = 100
_ROUNDS: Final = 36
_SPAN: Final = (math.log(1e-3), math.log(1e4))
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True)
class Prior:
    """Beta(a, b) of the pass rate, both above 0."""

    a: float
    b: float

    def hazard(self, n: int, passed: int = 0) -> float:
        """The chance that the next sample passes, after n of which so many did."""
        return (self.a + passed) / (self.a + self.b + n)

    def cap(self, least: float) -> float:
        """How many samples may fail before the hazard is below `least`; infinite where it never is."""
        if least <= 0.0:
            return math.inf
        return float(max(0, math.floor(self.a / least - self.a - self.b + 1e-9) + 1))


PRIORS: Final[Mapping[str, Prior]] = {"code": Prior(0.255, 0.898), "puzzles": Prior(0.218, 5.26), "puzzles, direct": Prior(0.074, 0.928)}
"""Fitted to published pass counts: HumanEval by CodeGen-16B; the Game of 24 by GPT-4, with and without a chain of thought."""


@dataclass(frozen=True, slots=True)
class FirstPass:
    """Stops at the first pass, and gives up below a price. price: tokens that a pass is worth, 0: never give up; least: a hazard that is
    too small whatever a sample costs. batch: samples at once."""

    prior: Prior = PRIORS["code"]
    worth: float = 0.0
    least: float = 0.0
    batch: int = 1
    cap: int = MOST

    def more(self, n: int, passed: int, tokens: float = 0.0) -> int:
        """How many samples to draw now, 0: stop. n: samples so far; tokens: of all of them."""
        if passed or not worthwhile(self.prior.hazard(n), n, tokens, self.worth, self.least):
            return 0
        return min(self.batch, max(0, self.cap - n))


def worthwhile(hazard: float, n: int, tokens: float, worth: float, least: float) -> bool:
    """Whether another sample pays: hazard x worth >= the tokens of a sample, as those so far had them; and hazard >= least."""
    return hazard >= least and (worth <= 0.0 or n == 0 or hazard * worth * n >= tokens)


def fit(passes: Sequence[tuple[int, int]]) -> Prior:
    """The Beta that makes these counts most likely: (samples, passes) of each question. Both parameters within 0.001 and 10,000.

    Raises ValueError when there is no question."""
    if not passes:
        raise ValueError("a prior needs questions")
    kinds: dict[tuple[int, int], int] = {}
    for pair in passes:
        kinds[pair] = kinds.get(pair, 0) + 1

    def likelihood(a: float, b: float) -> float:
        whole = _beta(a, b)
        return sum(count * (_beta(a + s, b + n - s) - whole) for (n, s), count in kinds.items())

    def best(a: float) -> tuple[float, float]:
        b = _highest(lambda log_b: likelihood(a, math.exp(log_b)))
        return b, likelihood(a, math.exp(b))

    a = _highest(lambda log_a: best(math.exp(log_a))[1])
    return Prior(math.exp(a), math.exp(best(math.exp(a))[0]))


def _beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _highest(function: Callable[[float], float]) -> float:
    """Where a function with one peak is highest within the span, by golden section."""
    low, high = _SPAN
    one, two = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_one, at_two = function(one), function(two)
    for _ in range(_ROUNDS):
        if at_one < at_two:
            low, one, at_one = one, two, at_two
            two = low + _GOLDEN * (high - low)
            at_two = function(two)
        else:
            high, two, at_two = two, one, at_one
            one = high - _GOLDEN * (high - low)
            at_one = function(one)
    return (low + high) / 2.0
