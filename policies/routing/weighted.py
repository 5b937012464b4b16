"""Plans drawn in fixed proportions: an A/B split, a canary by hand, or uniform logging for off-policy evaluation.

p(a) = w_a / sum_b w_b,   w_b >= 0, over the eligible plans b; evenly where none of them has a weight
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policies.policy import Kit
from policies.routing.base import Stateless
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """weights: plan name -> weight; a plan that is not named has weight 0. Empty: all plans alike."""

    weights: dict[str, float] = {}


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    found = [f"`weights` names `{name}`, which is not among the plans" for name in params.weights if name not in plans]
    found += [f"the weight of `{name}` is negative or not finite" for name, w in params.weights.items() if not 0 <= w < 1e300]
    if params.weights and not found and sum(params.weights.values()) <= 0:
        found.append("no plan has a positive weight")
    return found


def build(params: Params, _plans: Sequence[Plan], _kit: Kit) -> Weighted:
    """The policy."""
    return Weighted(params.weights)


class Weighted(Stateless):
    """weights: by plan name."""

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = weights

    def propensities(self, _state: None, situation: Situation, _scores: Scores) -> Odds:
        """The weights, normalised over the candidates."""
        weights = [self._weights.get(each.plan.name, 0.0) for each in situation.candidates]
        total = sum(weights)
        return Odds(tuple([w / total for w in weights]) if total > 0 else (1.0 / len(weights),) * len(weights))
