"""Thompson sampling with exact propensities, of independent scores (Thompson 1933; Agrawal and Goyal 2013).

    score_p ~ N(x' mean_p - price . cost_p - latency price . latency_p, (nu_p sd_p)^2),   sd_p = sqrt(x' cov_p x)
    p(a)    = P(score_a is the largest)                   by quadrature: models/best_arm.py
    nu_p    = warm + (cold - warm) k / (k + n_p)          n_p: what the observations of p are worth, k: `anneal`

Nothing is sampled but the one draw from these probabilities, so what is logged is what was drawn from. The posterior is that of
linear.py. nu_p falls with the evidence, and is high where there is none: for a new plan, and for all after a change was noticed. Where the
request may not be explored on, the best mean wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.best_arm import best
from policies.policy import Encoder, Kit
from policies.routing import linear
from policies.routing.base import argmax
from policies.routing.linear import INTERVAL, Learned, Linear, bound, clipped, net
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation


class Params(linear.Params, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """nu: standard deviations that are drawn with, when nothing is known. nu_warm: when much is. anneal: observations of a plan after which
    nu is half-way between. The others: see linear.py."""

    nu: float = 0.7
    nu_warm: float = 0.35
    anneal: float = 200.0


def problems(params: Params, _plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = linear.common_problems(params)
    if not 0 <= params.nu < float("inf") or not 0 <= params.nu_warm < float("inf"):
        found.append("`nu` and `nu_warm` must be at least 0")
    if not params.anneal > 0:
        found.append("`anneal` must be above 0")
    return found


def build(params: Params, plans: Sequence[Plan], kit: Kit) -> Thompson:
    """The policy. Raises ValueError for an encoder that cannot be had."""
    return Thompson(params, plans, [kit.encoder(name) for name in params.features])


class Thompson(Linear):
    """See above."""

    def __init__(self, params: Params, plans: Sequence[Plan], encoders: Sequence[Encoder] = ()) -> None:
        super().__init__(params, plans, encoders)
        self._params = params

    def estimate(self, state: Learned, situation: Situation) -> Scores:
        """Mean quality with a 95 % interval; the score is net of prices, and random by `spread`."""
        index, means, sds = self.moments(state, situation)
        low, high = bound(means, sds, -INTERVAL), bound(means, sds, INTERVAL)
        spread: tuple[float, ...] = (0.0,) * len(index)
        if situation.explore:
            params, evidence = self._params, state.posterior.evidence.tolist()
            warm, more = params.nu_warm, (params.nu - params.nu_warm) * params.anneal
            k = params.anneal
            spread = tuple([(warm + more / (k + max(evidence[plan], 0.0))) * sd for plan, sd in zip(index, sds, strict=True)])
        return Scores(clipped(means), low, high, tuple(net(situation, means)), spread)

    def propensities(self, _state: Learned, situation: Situation, scores: Scores) -> Odds:
        """How probably each candidate's score is the largest."""
        if not situation.explore:
            return Odds(argmax(scores.score))
        return Odds(best(scores.score, scores.spread))
