"""The threshold of a check, learnt under a limit: optimistic search among those that keep it.

A check gives each answer a score in [0, 1]; with threshold t it is escalated iff its score is below t. Thresholds are those of a grid
0 = t_0 < t_1 < ..; bin b holds the scores in [t_b, t_(b+1)), so t_k escalates the bins before k.

    cost(t)     mean over requests of price x [score < t]              every request tells it of every threshold: nothing is to be tried
      bound     + sqrt(2 var l / n) + 7 m l / (3 (n - 1)),             empirical Bernstein (Maurer and Pontil 2009); m: the greatest price
                l = ln(2 G / (1 - confidence))                         over G thresholds
    worth(t)    sum_b share_b x (escalated_b if b < t else kept_b)     means of the outcomes that are known, of 0 to 1
      bound     each mean + sqrt(l' / 2n_b), at most 1,                Hoeffding; l' = ln(2 B / (1 - confidence))
    choose      argmax of the bound of worth over t whose bound of cost is within the limit; of equals the least

So at each choice the limit is kept with that confidence, from the first on, when nothing is escalated, and what is not known is tried.
Optimistic feasible search doubts both sides in favour of trying; here the cost needs no trying, so it gets no benefit of the doubt. All is
in sums that forget (policies/decay.py) and that replicas may add in any order; evidence is counted after Kish, (sum w)^2 / sum w^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies.decay import moved, weight

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

GRID: Final = tuple(step / 20 for step in range(21))

# Rows of the sums: of weights, of weights times something, of squared weights.
_SEEN, _PRICE, _PRICE_2, _KEPT, _KEPT_WORTH, _ESCALATED, _ESCALATED_WORTH, _SEEN_2, _KEPT_2, _ESCALATED_2 = range(10)
_FIRST_SQUARE: Final = _SEEN_2
_ROWS: Final = 10


class Seen(NamedTuple):
    """One request. score: that the check gave, 0 to 1. price: that escalating costs or would have cost; 1 each to limit the share.
    escalated: whether it was. worth: how good the answer served was, 0 to 1; None: nobody said. at: seconds since 1970."""

    score: float
    price: float
    escalated: bool
    worth: float | None
    at: float = 0.0


@dataclass(frozen=True)
class Sums:
    """What is known. sums: (10, bins), see the rows above. landmark: seconds since 1970."""

    sums: Floats
    landmark: float = 0.0


@dataclass(frozen=True, slots=True)
class Search:
    """The rule. limit: of the mean cost of a request, in the unit of prices; of the share, if all prices are 1. most: the greatest price.
    confidence: with which the limit is kept. half_life_s: after which a request counts half; None: never. grid: rising, from 0."""

    limit: float
    most: float = 1.0
    confidence: float = 0.95
    half_life_s: float | None = None
    grid: tuple[float, ...] = GRID

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot work."""
        rising = all(one < other for one, other in pairwise(self.grid))
        if len(self.grid) < 2 or self.grid[0] != 0.0 or not rising:
            raise ValueError("a grid begins at 0, rises, and has at least two thresholds")
        if not (self.limit >= 0.0 and self.most > 0.0 and 0.0 < self.confidence < 1.0):
            raise ValueError("a limit is at least 0, the greatest price above it, a confidence between 0 and 1")

    def begin(self) -> Sums:
        """Nothing is known."""
        return Sums(np.zeros((_ROWS, len(self.grid))))

    def fold(self, state: Sums, seen: Iterable[Seen]) -> Sums:
        """The state, these requests in it. Raises ValueError for a price beyond the greatest, or a score or worth beyond 0 to 1."""
        each = tuple(seen)
        if not each:
            return state
        landmark, sums = state.landmark, state.sums.copy()
        if self.half_life_s is not None:
            landmark, halvings = moved(landmark, max(one.at for one in each), self.half_life_s)
            sums = _scaled(sums, halvings)
        for one in each:
            self._check(one)
            w = 1.0 if self.half_life_s is None else weight(one.at, landmark, self.half_life_s)
            sums[:, self._bin(one.score)] += _row(one, w)
        return Sums(sums, landmark)

    def added(self, one: Sums, other: Sums) -> Sums:
        """What two replicas know, which have seen different requests."""
        landmark = max(one.landmark, other.landmark)
        sums = np.zeros_like(one.sums)
        for state in (one, other):
            halvings = 0 if self.half_life_s is None else moved(state.landmark, landmark, self.half_life_s)[1]
            sums += _scaled(state.sums, halvings)
        return Sums(sums, landmark)

    def costs(self, state: Sums) -> Floats:
        """(thresholds,): the upper bound of the mean cost of each; infinite while too little is known."""
        sums = state.sums
        total = float(sums[_SEEN].sum())
        n = _kish(total, float(sums[_SEEN_2].sum()))
        bounds = np.full(len(self.grid), math.inf)
        bounds[0] = 0.0  # nothing is escalated
        if n < 2.0:
            return bounds
        mean = _before(sums[_PRICE]) / total
        variance = np.maximum(0.0, _before(sums[_PRICE_2]) / total - mean**2) * n / (n - 1.0)
        doubt = math.log(2.0 * len(self.grid) / (1.0 - self.confidence))
        bounds[1:] = (mean + np.sqrt(2.0 * variance * doubt / n) + 7.0 * self.most * doubt / (3.0 * (n - 1.0)))[1:]
        return bounds

    def worths(self, state: Sums) -> Floats:
        """(thresholds,): the upper bound of the mean worth of an answer under each."""
        sums = state.sums
        total = float(sums[_SEEN].sum())
        share = sums[_SEEN] / total if total > 0.0 else np.full(len(self.grid), 1.0 / len(self.grid))
        escalated = share * self._optimistic(sums[_ESCALATED], sums[_ESCALATED_WORTH], sums[_ESCALATED_2])
        kept = share * self._optimistic(sums[_KEPT], sums[_KEPT_WORTH], sums[_KEPT_2])
        worth: Floats = _before(escalated) + (kept.sum() - _before(kept))
        return worth

    def choose(self, state: Sums) -> float:
        """The threshold for the next requests: those whose score is below it are escalated."""
        worths = np.where(self.costs(state) <= self.limit, self.worths(state), -math.inf)
        return self.grid[int(np.argmax(worths >= worths.max() - 1e-12))]

    def _optimistic(self, weights: Floats, worth: Floats, squares: Floats) -> Floats:
        doubt = math.log(2.0 * len(self.grid) / (1.0 - self.confidence))
        known = weights > 0.0
        safe = np.where(known, weights, 1.0)
        radius = np.sqrt(doubt * np.where(known, squares, 1.0) / safe**2 / 2.0)
        bounds: Floats = np.where(known, np.minimum(1.0, worth / safe + radius), 1.0)
        return bounds

    def _bin(self, score: float) -> int:
        return int(np.searchsorted(self.grid, score, side="right")) - 1

    def _check(self, one: Seen) -> None:
        if not (0.0 <= one.score <= 1.0 and 0.0 <= one.price <= self.most and (one.worth is None or 0.0 <= one.worth <= 1.0)):
            raise ValueError(f"beyond its bounds: {one}")


def _row(one: Seen, w: float) -> Sequence[float]:
    known = one.worth is not None
    kept, escalated = w * (known and not one.escalated), w * (known and one.escalated)
    worth = one.worth or 0.0
    return (
        *(w, w * one.price, w * one.price**2),
        *(kept, kept * worth, escalated, escalated * worth),
        *(w * w, kept * kept, escalated * escalated),
    )


def _scaled(sums: Floats, halvings: int) -> Floats:
    powers = np.full((_ROWS, 1), halvings)
    powers[_FIRST_SQUARE:] *= 2
    scaled: Floats = np.ldexp(sums, powers)
    return scaled


def _before(values: Floats) -> Floats:
    """(bins,): the sum of the bins before each."""
    sums: Floats = np.concatenate(([0.0], np.cumsum(values)[:-1]))
    return sums


def _kish(total: float, squares: float) -> float:
    return total * total / squares if squares > 0.0 else 0.0
