"""A new plan is certainly tried, with a bounded share, and never takes over before it has proved itself.

A candidate with fewer than `until` labelled observations is a newcomer, as long as another candidate is none. Of what the policy inside
gives to all newcomers together, N:

    N > share    p'(a) = p(a) share / N                      newcomers; what is left goes to the others in proportion
    N < least    p'(a) = p(a) + (least - N) / newcomers      newcomers; the others give it up in proportion

Where the others have nothing, it goes to the one of them with the best score. Where it may not be explored on, newcomers get nothing. A
policy that does not explore and keeps a session with its plan is left alone: what began with a newcomer may stay with it. The floor comes
on top. Over the two sides of a canary inside, N is that of the marginal odds, so the bounds hold over all units (and what goes to others
that have nothing is divided evenly).

Counts add up, in any order, and can be taken back; a plan's share is that of the observations since it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.adapting import by_plan
from policies.policy import Kit, RoutingPolicy, plan_names
from policies.states import Arrays
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation
from policies.wrappers.base import Wrapper, handed, normalised, overall, spread, stays


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """share: most that all newcomers get together. least: what they get at least. until: labelled observations after which a plan is no
    newcomer any more."""

    share: float = 0.05
    least: float = 0.01
    until: int = 200


def problems(params: Params, _plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = [] if 0 < params.share < 1 else [f"`share` is {params.share:g}; it must lie between 0 and 1"]
    if not 0 <= params.least <= params.share:
        found.append("`least` must be at least 0 and at most `share`")
    return found + ([] if params.until >= 1 else ["`until` must be at least 1"])


def build(params: Params, inner: RoutingPolicy[Any], plans: Sequence[Plan], _kit: Kit) -> Newcomers:
    """The policy, wrapped."""
    return Newcomers(inner, plans, params)


@dataclass(frozen=True)
class State:
    """inner: of the policy inside. counts: (plans,), labelled observations. total: of all plans, those that are gone too. before: (plans,),
    what `total` was when the plan came."""

    inner: Any
    counts: npt.NDArray[np.int64]
    total: int
    before: npt.NDArray[np.int64]


class Newcomers(Wrapper):
    """inner: the policy inside. plans: of the virtual model."""

    def __init__(self, inner: RoutingPolicy[Any], plans: Sequence[Plan], params: Params) -> None:
        super().__init__(inner)
        self._plans = plan_names(plans)
        self._params = params

    def empty(self) -> State:
        """Every plan is new, so none is a newcomer."""
        zeros = np.zeros(len(self._plans), np.int64)
        return State(self.inner.empty(), zeros, 0, zeros)

    def propensities(self, state: State, situation: Situation, scores: Scores) -> Odds:
        """Those of the policy inside, within the bounds."""
        odds = self.inner.propensities(state.inner, situation, scores)
        counts, until = state.counts.tolist(), self._params.until
        new = [counts[each.index] < until for each in situation.candidates]
        if all(new) or not any(new) or stays(odds, situation):
            return odds
        given = sum(p for p, each in zip(overall(odds), new, strict=True) if each)
        most = self._params.share if situation.explore else 0.0
        if given > most:
            part = most / given
            return handed(odds, [part if each else 1.0 for each in new], spread(odds, scores, [not each for each in new]))
        if situation.explore and given < self._params.least:
            part = (1.0 - self._params.least) / (1.0 - given)
            return handed(odds, [1.0 if each else part for each in new], normalised([float(each) for each in new]))
        return odds

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """The policy learns, and observations are counted."""
        counts, total = state.counts.copy(), state.total
        for each in observations:
            index = self._plans.get(each.plan)
            if index is not None:
                counts[index] += each.count
                total += each.count
        return State(self.inner.fold(state.inner, observations), counts, total, state.before)

    def _own(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """Plans that stay keep their counts."""
        total = found["total"].item() if "total" in found else 0
        return by_plan(found, {"counts": 0, "before": total}, old, new)

    def statistics(self, state: State) -> dict[str, Any]:
        """`newcomers`: of each plan its observations, whether it is new still, and its share of the observations since it is there."""
        settled = bool((state.counts >= self._params.until).any())
        rows = {}
        for name, index in self._plans.items():
            count, since = int(state.counts[index]), state.total - int(state.before[index])
            newcomer = settled and count < self._params.until
            rows[name] = {"observations": count, "newcomer": newcomer, "share": count / since if since > 0 else None}
        return {"inner": self.inner.statistics(state.inner), "newcomers": rows}
