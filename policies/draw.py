"""The one place where a plan is drawn: the floor is mixed in, a keyed uniform decides, and the probability that is returned is exact.

p'(a) = (1 - floor) * p(a) + floor / |A|         floor: a total share, split over the eligible plans A
u = H(seed, decision id) in [0, 1)               the same on every replica, so that a decision can be replayed bit for bit
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from policies.values.decision import Decision


def uniform(decision_id: str, seed: int) -> float:
    """u in [0, 1) with 53 random bits, keyed by the policy's seed."""
    digest = hashlib.blake2b(decision_id.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def mix(propensities: Sequence[float], floor: float) -> tuple[float, ...]:
    """The propensities with the exploration floor in them; they sum to 1."""
    total = sum(propensities)
    if not 0 < total < inf or min(propensities) < 0:
        raise ValueError("no plan has a positive probability, or one has none that is a number from 0")
    kept, share = 1.0 - floor, floor / len(propensities)
    return tuple([kept * (p / total) + share for p in propensities])


def draw(propensities: Sequence[float], floor: float, decision_id: str, seed: int, marginal: Sequence[float] | None = None) -> Decision:
    """Draws one candidate. propensities: one number >= 0 for each eligible plan, before the floor.

    marginal: what the log says of the same candidates, where a part of the chance was fixed before (a session's side of an experiment);
    the floor is in it too, as it is in what is drawn from.
    """
    probabilities = mix(propensities, floor)
    cumulative = list(accumulate(probabilities))
    chosen = min(bisect_right(cumulative, uniform(decision_id, seed) * cumulative[-1]), len(probabilities) - 1)
    while probabilities[chosen] == 0.0:  # only rounding at the upper end leads here
        chosen -= 1
    logged = probabilities if marginal is None else mix(marginal, floor)
    return Decision(
        chosen=chosen,
        propensity=logged[chosen],
        probabilities=logged,
        explored=propensities[chosen] < max(propensities),
    )
