"""Another policy may leave the baseline only as far as it is not known to be able to lose more than a stated share of its quality.

A conservative bandit (Wu, Shariff, Lattimore and Szepesvari 2016; Kazerouni, Ghavamzadeh, Abbasi-Yadkori and Van Roy 2017), in the form
whose guarantee holds at every request (Khezeli and Bitar 2020): baseline and policy are mixed.

    p(a)  = (1 - s) [a = b] + s p_inner(a)                    b: the baseline
    s     = min(1 - control, max_loss v / l),  l = clip(-low, 0, v)      how far the policy is let go
    v     = sum [a = b] q / p_b / sum [a = b] / p_b           the baseline's mean quality (10 observations of 1/2 added)
    [low, high]                                               the gain of leaving the baseline, per request that leaves it, see below

so (1 - s) v + s (v - l) >= (1 - max_loss) v: with probability 1 - alpha, at all times together, no more than max_loss of the baseline's
quality is lost in expectation by a policy that gains what it has gained so far on average. (One that was good for long and breaks is the
business of offpolicy/alarm.py.) Where nothing is known l = v, and s = max_loss.

    gain  = sum_i (z_i - e_i) (q_i - 1/2) / sum_i e_i (1 - e_i)          z: the baseline was left, e = 1 - p_b: with which probability

estimates the mean over requests of q(policy) - q(baseline), weighted by e (1 - e), which is how much a request tells (residual on
residual: Robinson 1988; overlap weights: Li, Morgan and Zaslavsky 2018). Its terms lie within 1/2 whatever the probabilities are, and the
interval holds at all times, however the policy learns (sequences.radius). Mode:

    aside       high < -max_loss v: it is proven to lose more than it may. s = probe: nearly all is the baseline's, until the interval says
                something else
    cautious    low < -max_loss v <= high: a loss is not excluded. s as above
    open        low >= -max_loss v: s = 1 - control. The share `control` goes to the baseline for good, so that the meter runs on

Only what was drawn counts: observations with a baseline's probability of 0 or 1 say nothing of the gain. Not drawn are requests that may
not be explored on (the policy's choice if open, the baseline otherwise) and those on which a policy that does not explore keeps a session
with its plan (unless it steps aside and no tool's answer is awaited). Where it holds back, no floor is mixed in: its loss would be counted
nowhere. Where the baseline is not a candidate, the policy decides alone. Labels must come with the same probability on both sides. `sticky`
belongs inside, `canary` outside: the draws of one unit must be independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from policies.offpolicy.sequences import radius
from policies.policy import Kit, RoutingPolicy
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation
from policies.wrappers.base import Wrapper, mixed, normalised, only, position, stays

PRIOR = 10.0


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """max_loss: share of the baseline's quality that may be lost. alpha: how often the bounds may be wrong, at all times together. control:
    share that the baseline keeps when all is well. probe: share that the policy keeps when it has stepped aside."""

    max_loss: float = 0.02
    alpha: float = 0.05
    control: float = 0.1
    probe: float = 0.005


def problems(params: Params, _plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = [
        f"`{name}` is {getattr(params, name):g}; it must lie between 0 and 1"
        for name in ("max_loss", "alpha", "control", "probe")
        if not 0 < getattr(params, name) < 1
    ]
    if not found and params.probe > min(params.max_loss, 1.0 - params.control):
        found.append("`probe` is more than `max_loss` or than what `control` leaves")
    return found


def build(params: Params, inner: RoutingPolicy[Any], _plans: Sequence[Plan], kit: Kit) -> Safe:
    """The policy, wrapped."""
    return Safe(inner, kit.baseline, params)


@dataclass(frozen=True)
class State:
    """inner: of the policy. n: observations that count. total, squares: sums of (z - e) (q - 1/2) and of its square. overlap: of e (1 - e).
    served, value: sums of [a = b] / p_b and of q [a = b] / p_b."""

    inner: Any
    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    overlap: float = 0.0
    served: float = 0.0
    value: float = 0.0


class Gain(msgspec.Struct, frozen=True):
    """What the meter shows. mean, low, high: of leaving the baseline, per request that leaves it. baseline: its mean quality. share: of the
    requests that the policy decides."""

    mode: Literal["aside", "cautious", "open"]
    share: float
    mean: float
    low: float
    high: float
    baseline: float


class Safe(Wrapper):
    """inner: the policy. baseline: the plan that is the guarantee."""

    def __init__(self, inner: RoutingPolicy[Any], baseline: str, params: Params) -> None:
        super().__init__(inner)
        self._baseline = baseline
        self._params = params

    def empty(self) -> State:
        """What is known before anything is."""
        return State(self.inner.empty())

    def gain(self, state: State) -> Gain:
        """The meter, and what follows from it."""
        p = self._params
        value = (state.value + PRIOR / 2) / (state.served + PRIOR)
        mean, low, high = 0.0, -1.0, 1.0
        if state.overlap > 0:
            mean = state.total / state.overlap
            reach = radius(state.squares, p.alpha, 0.5) / state.overlap
            low, high = max(mean - reach, -1.0), min(mean + reach, 1.0)
        if high < -p.max_loss * value:
            return Gain("aside", p.probe, mean, low, high, value)
        if low >= -p.max_loss * value:
            return Gain("open", 1.0 - p.control, mean, low, high, value)
        return Gain("cautious", min(1.0 - p.control, p.max_loss * value / min(-low, value)), mean, low, high, value)

    def propensities(self, state: State, situation: Situation, scores: Scores) -> Odds:
        """Baseline and policy, mixed."""
        odds = self.inner.propensities(state.inner, situation, scores)
        baseline = position(situation, self._baseline)
        if baseline is None:
            return odds
        gain = self.gain(state)
        if stays(odds, situation) and (gain.mode != "aside" or situation.tool_loop):
            return odds
        one = only(baseline, len(situation.candidates))
        if not situation.explore:
            return odds if gain.mode == "open" else Odds(one, explores=False, shadow=odds.shadow)
        marginal = None if odds.marginal is None else mixed(one, normalised(odds.marginal), gain.share)
        return Odds(mixed(one, normalised(odds.drawn), gain.share), marginal, odds.explores and gain.mode == "open", odds.shadow)

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """The policy learns, and the meter runs."""
        n, total, squares, overlap, served, value = state.n, state.total, state.squares, state.overlap, state.served, state.value
        for each in observations:
            if not 0.0 < each.baseline < 1.0:
                continue
            chose = each.plan == self._baseline
            leaving = 1.0 - each.baseline
            part = (0.0 if chose else 1.0) - leaving
            for quality, sign in ((each.quality, 1), (each.before, -1)):
                if quality is None:
                    continue
                term = part * (quality - 0.5)
                n, total, squares, overlap = (
                    n + sign,
                    total + sign * term,
                    squares + sign * term * term,
                    overlap + sign * leaving * each.baseline,
                )
                if chose:
                    served, value = served + sign / each.baseline, value + sign * quality / each.baseline
        return State(self.inner.fold(state.inner, observations), n, total, squares, overlap, served, value)

    def statistics(self, state: State) -> dict[str, Any]:
        """The meter, with the number of observations that count, and what the policy inside has."""
        gain = {"observations": state.n, **msgspec.to_builtins(self.gain(state))}
        return {"inner": self.inner.statistics(state.inner), "gain": gain}
