"""A policy that learns no more and explores no more: what it knows is what it serves.

s(a) = score(a)                                          as the policy inside scores where nothing is explored
s(a) = low(a) - (quality(a) - score(a))                  pessimistic: the lower end of what is known of quality, minus what the plan costs

Pessimism (the best plan by its lower bound) is what a policy should do that learned from a log and cannot try: it does not take a plan for
good because little is known of it (Hong et al. 2023; Jin, Yang and Wang 2021). A policy that estimates nothing keeps its own odds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from policies.policy import Kit, RoutingPolicy
from policies.routing.base import argmax
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation
from policies.wrappers.base import Held, Wrapper, quiet


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """pessimistic: the plan with the best lower bound, rather than the best estimate."""

    pessimistic: bool = False


def problems(_params: Params, _plans: Sequence[str]) -> list[str]:
    """There are none."""
    return []


def build(params: Params, inner: RoutingPolicy[Any], _plans: Sequence[Plan], _kit: Kit) -> Frozen:
    """The policy, wrapped."""
    return Frozen(inner, params.pessimistic)


class Frozen(Wrapper):
    """inner: the policy inside. pessimistic: see Params."""

    def __init__(self, inner: RoutingPolicy[Any], pessimistic: bool) -> None:
        super().__init__(inner)
        self._pessimistic = pessimistic

    def estimate(self, state: Held, situation: Situation) -> Scores:
        """What the policy inside thinks where it does not explore."""
        scores = self.inner.estimate(state.inner, quiet(situation))
        if not self._pessimistic:
            return scores
        cautious = tuple(low - (q - s) for low, q, s in zip(scores.low, scores.quality, scores.score, strict=True))
        return msgspec.structs.replace(scores, score=cautious)

    def propensities(self, state: Held, situation: Situation, scores: Scores) -> Odds:
        """Those of the policy inside where it does not explore, and no floor; one-hot at the best lower bound if it is
        pessimistic and the bounds differ."""
        odds = self.inner.propensities(state.inner, quiet(situation), scores)
        if self._pessimistic and max(scores.score) > min(scores.score):
            odds = Odds(argmax(scores.score), shadow=odds.shadow)
        return msgspec.structs.replace(odds, explores=False)

    def fold(self, state: Held, _observations: Sequence[Observation]) -> Held:
        """Nothing is learned."""
        return state
