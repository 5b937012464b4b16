"""The plan with the best mean, whatever the request: the baseline that every router must beat.

    score(a) = mean_a - prices.cost * cost_a - prices.latency * latency_a          mean_a: see policies.means
    p(a) = 1 for the best score; of several alike the baseline                     only the floor explores

A plan that nobody has tried stands at the prior mean, so it is tried where all others fall below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from policies import decay
from policies.adapting import by_plan
from policies.means import Estimate, Means, estimates, folded, nothing
from policies.policy import Encoder, Kit, plan_names
from policies.routing.base import favourite, priced
from policies.states import Arrays
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """prior_mean, prior_strength: what is thought of a plan that nobody has tried, and how many labels that is worth. half_life_s: after
    which an observation counts half."""

    prior_mean: float = 0.5
    prior_strength: float = 2.0
    half_life_s: float = 30 * 86_400.0


def problems(params: Params, _plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = decay.problems(params.half_life_s)
    if not 0 <= params.prior_mean <= 1:
        found.append("`prior_mean` must lie between 0 and 1")
    if not 0 < params.prior_strength < 1e9:
        found.append("`prior_strength` must be positive and finite")
    return found


def build(params: Params, plans: Sequence[Plan], kit: Kit) -> BestSingle:
    """The policy."""
    return BestSingle(params, plans, kit.baseline)


class BestSingle:
    """plans: of the virtual model. baseline: name of the plan that serves where all are alike."""

    encoders: tuple[Encoder, ...] = ()

    def __init__(self, params: Params, plans: Sequence[Plan], baseline: str) -> None:
        self._params = params
        self._plans = plan_names(plans)
        self._baseline = baseline

    def empty(self) -> Means:
        """No plan was tried."""
        return nothing(len(self._plans))

    def estimate(self, state: Means, situation: Situation) -> Scores:
        """Each plan's mean, as of the request's time."""
        known = self._estimates(state, situation.now)
        mean, low, high, _ = zip(*(known[each.index] for each in situation.candidates), strict=True)
        return Scores(mean, low, high, priced(mean, situation))

    def propensities(self, _state: Means, situation: Situation, scores: Scores) -> Odds:
        """One-hot at the best score."""
        return Odds(favourite(scores.score, situation, self._baseline))

    def fold(self, state: Means, observations: Sequence[Observation]) -> Means:
        """Adds to the sums."""
        return folded(state, observations, self._plans, self._params.half_life_s)

    def adapted(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """The sums, over other plans: see policies.adapting."""
        return by_plan(found, {"number": 0.0, "squares": 0.0, "gained": 0.0}, old, new)

    def statistics(self, state: Means) -> dict[str, Any]:
        """As of the newest observation: mean, its interval, and the evidence in labels."""
        known = self._estimates(state, state.latest)
        return {name: known[index]._asdict() for name, index in self._plans.items()}

    def _estimates(self, state: Means, now: float) -> list[Estimate]:
        params = self._params
        return estimates(state, now, params.half_life_s, params.prior_mean, params.prior_strength)
