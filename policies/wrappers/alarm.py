"""Takes a plan out when its quality falls below its reference, and lets it come back when it has recovered.

reference     as configured; else the mean of the plan's first `learn_first` labels, fixed then
fires         E >= plans / alpha against "its quality is at least m", m = reference - margin: see policies.offpolicy.alarm
is cleared    after `recover` labels or more since it fired, log K+(m) >= log(1 / alpha) of these (sequences.Betting): the lower end of
              their confidence sequence is above m. Then it is watched anew
odds          p'(a) = 0 where it has fired, before the floor; its share goes to the others in proportion to what the policy inside gives
              them, else to the best score. Where all candidates have fired, the baseline serves, or if it is none, the policy decides

Only the floor tries a plan that is out, so without a floor it never comes back. A session whose tool's answer is awaited stays with its
plan where the policy inside says so. Over the two sides of a canary inside, the marginal odds say how the share is divided.

alpha bounds false alarms over all plans and all time, from one clearing to the next, where the reference is right: a learned one has an
error of its own (0.03 is its standard deviation after 300 labels of 0 or 1 at worst), which the margin must cover. A plan whose learned
reference is not above the margin cannot fall below, and is not watched. Labels count alike, whatever their weight.

Order matters: observations are folded as they arrive. A first label counts; what corrects it or takes it back counts only while it is part
of a reference that is not fixed yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from policies.adapting import by_plan
from policies.offpolicy import alarm
from policies.offpolicy.sequences import KNOTS, Betting
from policies.policy import Kit, RoutingPolicy, plan_names
from policies.states import Arrays
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation
from policies.wrappers.base import Wrapper, handed, only, position, spread, stays

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NEW: Final[Mapping[str, float]] = {
    "evidence.capital": 0.0,
    "evidence.seen": 0,
    "evidence.peak": 1.0,
    "labels": 0,
    "total": 0.0,
    "fired": 0.0,
    "alarms": 0,
    "since": 0.0,
}


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """references: quality that is expected, by plan. learn_first: labels that make the reference of a plan without one; 0: such a plan is
    not watched. margin: how far below is still all right. alpha: how likely a false alarm is. recover: labels after which it may come
    back."""

    references: dict[str, float] = {}
    learn_first: int = 300
    margin: float = 0.05
    alpha: float = 0.01
    recover: int = 200


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    found = [
        f"`{name}` is {value:g}; it must lie between 0 and 1"
        for name, value in (("margin", params.margin), ("alpha", params.alpha))
        if not 0 < value < 1
    ]
    found += [f"`references` names `{name}`, which is not among the plans" for name in params.references if name not in plans]
    found += [
        f"the reference of `{name}` must be above `margin` and at most 1"
        for name, value in params.references.items()
        if not params.margin < value <= 1
    ]
    found += [] if params.learn_first >= 0 else ["`learn_first` must be at least 0"]
    return found + ([] if params.recover >= 1 else ["`recover` must be at least 1"])


def build(params: Params, inner: RoutingPolicy[Any], plans: Sequence[Plan], kit: Kit) -> Alarmed:
    """The policy, wrapped."""
    return Alarmed(inner, plans, kit.baseline, params)


@dataclass(frozen=True)
class State:
    """inner: of the policy inside. evidence: of policies.offpolicy.alarm. labels, total: (plans,), number and sum of those that make a
    reference. fired: (plans,), when its last observation had been decided, seconds since 1970; 0: it is in. alarms: (plans,), how often it
    fired. since: (plans, knots), histogram of quality since it fired (sequences.Betting)."""

    inner: Any
    evidence: alarm.State
    labels: Ints
    total: Floats
    fired: Floats
    alarms: Ints
    since: Floats


class Alarmed(Wrapper):
    """inner: the policy inside. plans: of the virtual model. baseline: name of the plan that serves where all have fired."""

    def __init__(self, inner: RoutingPolicy[Any], plans: Sequence[Plan], baseline: str, params: Params) -> None:
        super().__init__(inner)
        self._plans = plan_names(plans)
        self._baseline = baseline
        self._params = params

    def empty(self) -> State:
        """No plan was tried."""
        n = len(self._plans)
        ints, floats = np.zeros(n, np.int64), np.zeros(n)
        return State(self.inner.empty(), self._process({}).empty(), ints, floats, floats, ints, np.zeros((n, len(KNOTS))))

    def propensities(self, state: State, situation: Situation, scores: Scores) -> Odds:
        """Those of the policy inside, without plans that have fired."""
        odds = self.inner.propensities(state.inner, situation, scores)
        fired = state.fired.tolist()
        good = [fired[each.index] == 0.0 for each in situation.candidates]
        if all(good) or (situation.tool_loop and stays(odds, situation)):
            return odds
        if any(good):
            return handed(odds, [float(each) for each in good], spread(odds, scores, good))
        baseline = position(situation, self._baseline)
        return odds if baseline is None else handed(odds, [0.0] * len(good), only(baseline, len(good)))

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """The policy learns, and each plan is watched, in the order of the observations."""
        inner = self.inner.fold(state.inner, observations)
        labels, total, fired = state.labels.copy(), state.total.copy(), state.fired.copy()
        state = replace(state, inner=inner, labels=labels, total=total, fired=fired, alarms=state.alarms.copy(), since=state.since.copy())
        for each in observations:
            row = self._plans.get(each.plan)
            if row is None:
                continue
            if self._learns(state, each.plan):
                labels[row] += each.count
                total[row] += (each.quality or 0.0) - (each.before or 0.0)
            elif each.count > 0 and (reference := self._reference(state, each.plan)) is not None:
                state = self._watched(state, each, row, reference)
        return state

    def _watched(self, state: State, each: Observation, row: int, reference: float) -> State:
        """The state after one label; of its own copies."""
        if state.fired[row] == 0.0:
            process = self._process({each.plan: reference})
            state = replace(state, evidence=process.fold(state.evidence, [each]))
            if state.evidence.peak[row] >= process.threshold:
                state.fired[row] = max(each.at, math.ulp(0.0))
                state.alarms[row] += 1
                state.since[row] = 0.0
            return state
        quality = 0.0 if each.quality is None else each.quality
        better = Betting(state.since[row]).update([quality])
        state.since[row] = better.histogram
        if round(float(better.histogram.sum())) < self._params.recover:
            return state
        if better.above(reference - self._params.margin) < math.log(1.0 / self._params.alpha):
            return state
        state.fired[row] = 0.0
        capital, seen, peak = state.evidence.capital.copy(), state.evidence.seen.copy(), state.evidence.peak.copy()
        capital[row], seen[row], peak[row] = 0.0, 0, 1.0
        return replace(state, evidence=alarm.State(capital, seen, peak))

    def _process(self, references: dict[str, float]) -> alarm.Alarm:
        """Over all plans, so that rows and threshold are always the same; what is not asked for stands at any reference that can be."""
        margin = self._params.margin
        return alarm.Alarm({name: references.get(name, (1.0 + margin) / 2) for name in self._plans}, margin, self._params.alpha)

    def _learns(self, state: State, plan: str) -> bool:
        return plan not in self._params.references and int(state.labels[self._plans[plan]]) < self._params.learn_first

    def _reference(self, state: State, plan: str) -> float | None:
        """What is expected of a plan; None: it is not known yet, or nothing could be below."""
        known = self._params.references.get(plan)
        if known is not None:
            return known
        row = self._plans[plan]
        if not self._params.learn_first or self._learns(state, plan):
            return None
        mean = min(float(state.total[row] / state.labels[row]), 1.0)
        return mean if mean > self._params.margin else None

    def _own(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """Plans that stay keep their references, their evidence and their alarms."""
        return by_plan(found, NEW, old, new)

    def statistics(self, state: State) -> dict[str, Any]:
        """`alarm`: of each plan its reference, the evidence against it with what it takes, when it fired, how often, and labels since."""
        threshold = self._process({}).threshold
        rows = {
            name: {
                "reference": self._reference(state, name),
                "labels": int(state.labels[row]) + int(state.evidence.seen[row]),
                "evidence": float(state.evidence.peak[row]),
                "threshold": threshold,
                "fired_at": float(state.fired[row]) or None,
                "alarms": int(state.alarms[row]),
                "since": round(float(state.since[row].sum())),
            }
            for name, row in self._plans.items()
        }
        return {"inner": self.inner.statistics(state.inner), "alarm": rows}
