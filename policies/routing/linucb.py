"""Linear UCB with shared parameters and forward decay (Li et al. 2010, hybrid; decay: Cormode et al. 2009; budget term: ParetoBandit 2026).

    score(p) = x' mean_p + alpha sqrt(x' cov_p x) - price . cost_p - latency price . latency_p
    p(a)     = 1 at the largest score

The posterior is that of linear.py. Where the request may not be explored on, alpha is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from policies.policy import Encoder, Kit
from policies.routing import linear
from policies.routing.base import argmax
from policies.routing.linear import INTERVAL, Learned, Linear, bound, clipped, net
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation


class Params(linear.Params, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """alpha: width of the bonus, in standard deviations: 2 where nothing is known yet (less locks on to a wrong plan now and then); with
    200 labels of every plan, 0.25 to 0.5 is enough. The others: see linear.py."""

    alpha: float = 2.0


def problems(params: Params, _plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = linear.common_problems(params)
    if not 0 <= params.alpha < float("inf"):
        found.append("`alpha` must be at least 0")
    return found


def build(params: Params, plans: Sequence[Plan], kit: Kit) -> LinUCB:
    """The policy. Raises ValueError for an encoder that cannot be had."""
    return LinUCB(params, plans, [kit.encoder(name) for name in params.features])


class LinUCB(Linear):
    """See above."""

    def __init__(self, params: Params, plans: Sequence[Plan], encoders: Sequence[Encoder] = ()) -> None:
        super().__init__(params, plans, encoders)
        self._alpha = params.alpha

    def estimate(self, state: Learned, situation: Situation) -> Scores:
        """Mean quality with a 95 % interval; the score is the upper bound, net of prices."""
        _, means, sds = self.moments(state, situation)
        score = net(situation, means)
        if situation.explore:
            alpha = self._alpha
            score = [value + alpha * sd for value, sd in zip(score, sds, strict=True)]
        low, high = bound(means, sds, -INTERVAL), bound(means, sds, INTERVAL)
        return Scores(clipped(means), low, high, tuple(score))

    def propensities(self, _state: Learned, _situation: Situation, scores: Scores) -> Odds:
        """One-hot at the largest score; the first of several."""
        return Odds(argmax(scores.score))
