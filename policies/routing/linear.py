"""What LinUCB and Thompson sampling have in common: what they learn (models/ridge.py), and when they doubt it (models/drift.py).

    quality_p(x) = x' mean_p,   sd_p(x) = sqrt(x' cov_p x),   x = [1, features]

A plan with a strategy is no arm of its own: where the strategy has a response curve, its quality is composed of its model's, the curve and
a residual, and each teaches the others.

Learning is a sum over observations, order-free and additive, but for the detector of change, which sees them as they come. The posterior is
made where observations are folded; a decision reads it. An observation of a plan that is no more, or without the features that are read
here, is passed over, and so is what corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from math import sqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from models.drift import Detector, Drift
from models.response import ONCE, Response
from models.ridge import Batch, Posterior, Ridge, Sums
from policies.adapting import by_plan
from policies.decoding.registry import SINGLE
from policies.policy import Encoder, plan_names
from policies.states import Arrays, arrays, restored
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation

Floats = npt.NDArray[np.float64]

# Standard deviations on either side that hold 95 % of a normal distribution.
INTERVAL = 1.96
# What of the state has a row for each plan; the posterior follows from it.
PER_PLAN = ("sums.gram", "sums.moment", "sums.squares", "drift.error", "drift.pulls", "drift.alarms")


class Doubt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The detector of change: see models/drift.py. threshold: 0 turns it off."""

    rate: float = 0.02
    threshold: float = 0.25
    pulls: int = 50
    keep: float = 0.005


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """features: encoders that are read, by name. half_life_s: after which an observation counts half; None: never. prior_mean: quality of
    a plan of which nothing is known; optimistic, so that a few bad answers do not end it. The precisions of the prior, in observations:
    strength, of a model's level around that of all; pool, of the level of all around prior_mean; residual, of a plan's level around its
    model's; ridge, of slopes; efficiency, of what a kind of strategy makes of further answers, around what is expected of it; misfit, of
    the level of a plan with such a strategy around its response curve. noise: variance of one answer's quality.

    Without features, by default: of 11 models over 12,000 questions of MMLU-Pro, features of 32 or 64 numbers cost more exploration than
    they return. A few soft topics (at most 14 numbers, ridge 30 to 60) do return it, once they are learned from labels.
    """

    features: tuple[str, ...] = ()
    half_life_s: float | None = None
    prior_mean: float = 0.8
    strength: float = 4.0
    pool: float = 20.0
    residual: float = 10.0
    ridge: float = 60.0
    efficiency: float = 2.0
    misfit: float = 200.0
    noise: float = 0.2
    drift: Doubt = Doubt()


@dataclass(frozen=True)
class Learned:
    """What is known. The posterior follows from the sums; it is kept, so that nobody computes it twice."""

    sums: Sums
    posterior: Posterior
    drift: Drift


def common_problems(params: Params) -> list[str]:
    """What of the shared parameters cannot work."""
    positive = ("strength", "pool", "residual", "ridge", "efficiency", "misfit", "noise")
    found = [f"`{name}` must be above 0" for name in positive if not 0 < getattr(params, name) < float("inf")]
    if params.half_life_s is not None and not params.half_life_s > 0:
        found.append("`half_life_s` must be above 0")
    if not 0 <= params.prior_mean <= 1:
        found.append("`prior_mean` must be between 0 and 1")
    if not 0 < params.drift.rate <= 1 or not 0 < params.drift.keep <= 1 or params.drift.threshold < 0 or params.drift.pulls < 1:
        found.append("`drift`: rate and keep are above 0 and at most 1, threshold is at least 0, pulls at least 1")
    if len(set(params.features)) < len(params.features):
        found.append("`features` names an encoder twice")
    return found


class Linear:
    """params, plans of the virtual model, encoders that are read."""

    def __init__(self, params: Params, plans: Sequence[Plan], encoders: Sequence[Encoder]) -> None:
        self.encoders = tuple(encoders)
        self._names = tuple(plan.name for plan in plans)
        self._index = plan_names(plans)
        kinds = [(plan.model, plan.reasoning) for plan in plans]
        order = {kind: group for group, kind in enumerate(dict.fromkeys(kinds))}
        self._ridge = Ridge(
            groups=tuple(order[kind] for kind in kinds),
            features=sum(encoder.dim for encoder in encoders),
            half_life=params.half_life_s,
            noise=params.noise,
            slopes=params.ridge,
            pool=params.pool,
            intercept=params.strength,
            residual=params.residual,
            mean=params.prior_mean,
            efficiency=params.efficiency,
            misfit=params.misfit,
            curves=_curves(plans),
        )
        doubt = params.drift
        self._detector = Detector(doubt.rate, doubt.threshold, doubt.pulls, doubt.keep)
        self._watches = doubt.threshold > 0
        self._all = list(range(len(plans)))

    def empty(self) -> Learned:
        """The prior."""
        sums = self._ridge.empty()
        return Learned(sums, self._ridge.posterior(sums), self._detector.empty(len(self._names)))

    def moments(self, state: Learned, situation: Situation) -> tuple[list[int], list[float], list[float]]:
        """Of each candidate: its index, mean and standard deviation of its quality."""
        mean, cov = state.posterior.mean, state.posterior.cov
        index = self._all
        if len(situation.candidates) < len(index):
            index = [candidate.index for candidate in situation.candidates]
            mean, cov = mean[index], cov[index]
        if self.encoders:
            x = self._vector(situation.blocks)
            variances = cov.reshape(-1, x.size).dot(x).reshape(-1, x.size).dot(x)  # x' C_a x of each, in two plain products
            return index, mean.dot(x).tolist(), [sqrt(each) if each > 0.0 else 0.0 for each in variances.tolist()]
        return index, mean[:, 0].tolist(), np.sqrt(cov[:, 0, 0]).tolist()

    def fold(self, state: Learned, observations: Sequence[Observation]) -> Learned:
        """What is known after these, too."""
        batch = self._batch(observations)
        if not len(batch.plan):
            return state
        if not self._watches:
            sums = self._ridge.added(state.sums, batch)
            return Learned(sums, self._ridge.posterior(sums), state.drift)
        start = 0
        while start < len(batch.plan):
            state, start = self._step(state, batch, start)
        return state

    def _step(self, state: Learned, batch: Batch, start: int) -> tuple[Learned, int]:
        """Folds what may be predicted from one posterior, up to an alarm if there is one, and says where the rest starts."""
        part = batch.part(start, self._stop(state.drift, batch, start))
        new = np.flatnonzero(part.count > 0)
        plans = part.plan[new]
        missed = part.gain[new] / part.weight[new] - np.einsum("ni,ni->n", part.x[new], state.posterior.mean[plans])
        drift, alarm = self._detector.watched(state.drift, plans.tolist(), missed.tolist())
        sums = state.sums
        if alarm is None:
            sums = self._ridge.added(sums, part, self._detector.shares(drift, part.at))
            return Learned(sums, self._ridge.posterior(sums), drift), start + len(part.plan)
        # What raised the alarm belongs to what comes after it; all that was decided before it counts little from now on.
        before = part.part(0, int(new[alarm]))
        sums = self._ridge.added(sums, before, self._detector.shares(drift, before.at))
        at = float(part.at[new[alarm]])
        mark = at if at >= sums.latest else float(np.nextafter(sums.latest, np.inf))
        sums = self._ridge.kept(sums, self._detector.keep)
        drift = self._detector.marked(drift, int(plans[alarm]), mark)
        return Learned(sums, self._ridge.posterior(sums), drift), start + len(before.plan)

    @staticmethod
    def _stop(drift: Drift, batch: Batch, start: int) -> int:
        """Where the posterior is to be renewed before errors are told: when a plan has an eighth more answers than it was made of."""
        left = np.maximum(1, drift.pulls // 8).tolist()
        for position, (plan, count) in enumerate(zip(batch.plan[start:].tolist(), batch.count[start:].tolist(), strict=True), start):
            if count > 0:
                if not left[plan]:
                    return position
                left[plan] -= 1
        return len(batch.plan)

    def _batch(self, observations: Sequence[Observation]) -> Batch:
        names = [encoder.name for encoder in self.encoders]
        seen = [each for each in observations if each.plan in self._index and all(name in each.blocks for name in names)]
        x = np.ones((len(seen), self._ridge.dim))
        if names:
            for row, each in zip(x, seen, strict=True):
                row[1:] = np.concatenate([each.blocks[name] for name in names])
        numbers = np.array([(each.count, each.gain, each.weight, each.at) for each in seen], dtype=np.float64).reshape(-1, 4)
        plans = np.array([self._index[each.plan] for each in seen], dtype=np.int64)
        return Batch(plans, x, *numbers.T)

    def _vector(self, blocks: Any) -> Floats:
        x = np.empty(self._ridge.dim)
        x[0] = 1.0
        x[1:] = (
            np.concatenate([blocks[encoder.name] for encoder in self.encoders]) if len(self.encoders) > 1 else blocks[self.encoders[0].name]
        )
        return x

    def adapted(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """What was learned, over other plans (policies.adapting): what their model and all plans have in common is made anew from those
        that stay. Raises ValueError where it does not fit."""
        fitting = by_plan(found, dict.fromkeys(PER_PLAN, 0.0), old, new)
        sums = restored(self._ridge.empty(), fitting, "sums.")
        drift = restored(self._detector.empty(len(self._names)), fitting, "drift.")
        return arrays(Learned(sums, self._ridge.posterior(sums), drift))

    def statistics(self, state: Learned) -> dict[str, Any]:
        """By plan: pulls (what its observations are worth, forgetting included), mean of their quality, the posterior mean at x = 0 with a
        95 % interval, and resets (changes that were noticed on it). Where plans have response curves, under `strategies` the efficiency of
        each kind, with its interval."""
        mass, moment = state.sums.gram[:, 0, 0], state.sums.moment[:, 0]
        raw = np.divide(moment, mass, out=np.full_like(mass, np.nan), where=mass > 1e-9)
        mean, sd = state.posterior.mean[:, 0], np.sqrt(state.posterior.cov[:, 0, 0])
        rows = zip(state.posterior.evidence, raw, mean, mean - INTERVAL * sd, mean + INTERVAL * sd, state.drift.alarms, strict=True)
        found: dict[str, Any] = {"plans": dict(zip(self._names, starmap(_row, rows), strict=True))}
        if known := self._ridge.efficiencies(state.sums):
            bounds = {kind: {"efficiency": at, "low": at - INTERVAL * sd, "high": at + INTERVAL * sd} for kind, (at, sd) in known.items()}
            found["strategies"] = bounds
        return found


def _curves(plans: Sequence[Plan]) -> tuple[Response | None, ...]:
    """The curve of each. The plain plan of a model whose other plans have curves is where these begin: a single try."""
    begun = {(plan.model, plan.reasoning) for plan in plans if plan.response is not None}
    return tuple(
        ONCE if plan.strategy == SINGLE and plan.budget_tokens is None and (plan.model, plan.reasoning) in begun else plan.response
        for plan in plans
    )


def _row(pulls: float, raw: float, mean: float, low: float, high: float, alarms: int) -> dict[str, float | int | None]:
    return {
        "pulls": float(pulls),
        "mean": None if np.isnan(raw) else float(raw),
        "posterior": float(mean),
        "low": float(low),
        "high": float(high),
        "resets": int(alarms),
    }


def clipped(values: Sequence[float]) -> tuple[float, ...]:
    """Each within [0, 1]."""
    return tuple([0.0 if v < 0.0 else 1.0 if v > 1.0 else v for v in values])


def bound(means: Sequence[float], sds: Sequence[float], width: float) -> tuple[float, ...]:
    """mean + width sd of each, within [0, 1]."""
    return tuple([0.0 if (v := m + width * sd) < 0.0 else 1.0 if v > 1.0 else v for m, sd in zip(means, sds, strict=True)])


def net(situation: Situation, means: Sequence[float]) -> list[float]:
    """Quality minus what each candidate costs at the request's prices."""
    prices = situation.prices
    cost, latency = prices.cost, prices.latency
    return [mean - cost * each.cost - latency * each.latency for mean, each in zip(means, situation.candidates, strict=True)]
