"""When a candidate takes the current policy's place: a rule that is written down before, and a record of every number that led to the
verdict.

promote     iff  requests >= least,  labels >= least_labels,  ESS >= 15,
                 low(quality, candidate - current) > -margin,
                 high(cost, candidate - current) <= dearer * mean cost of the current,
                 high(latency, candidate - current) <= slower * mean latency of the current
reject      iff  high(quality, candidate - current) < -margin: it is worse, and that is sure
wait        otherwise

All bounds hold at every moment at once (sequences.py), so the rule may be asked after every request.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from policies.offpolicy.estimators import MAX_UNCOVERED, MIN_ESS, Sample, differences, dr, effective, uncovered
from policies.offpolicy.log import Logged
from policies.offpolicy.replay import known_share, labelling, sample
from policies.offpolicy.sequences import Moments

Floats = npt.NDArray[np.float64]

Verdict = Literal["promote", "reject", "wait"]


@dataclass(frozen=True)
class Rule:
    """margin: quality that may be lost, 0 to 1; negative: must be gained. dearer, slower: by which share the mean cost and the mean latency
    may rise; None: does not matter. least: requests. least_labels: of them labelled. alpha: chance of a wrong promotion or rejection, over
    all time."""

    margin: float = 0.0
    dearer: float | None = 0.0
    slower: float | None = None
    least: int = 500
    least_labels: int = 100
    alpha: float = 0.05


@dataclass(frozen=True)
class Bound:
    """An estimate of candidate - current with bounds that hold at every moment. current: the mean of the current policy."""

    estimate: float
    low: float
    high: float
    current: float


@dataclass(frozen=True)
class Evidence:
    """What is known of a candidate. quality; cost, in USD; latency, in seconds; None: not known."""

    requests: int
    labels: int
    ess: float
    quality: Bound | None
    cost: Bound | None = None
    latency: Bound | None = None


@dataclass(frozen=True)
class Check:
    """One line of the rule: what it asks, the value, what it is compared with, and whether it holds."""

    what: str
    value: float | None
    bound: float
    holds: bool


@dataclass(frozen=True)
class Record:
    """A verdict and all that led to it. at: seconds since 1970. versions: of the states that were compared; None: it has none."""

    verdict: Verdict
    candidate: str
    current: str
    at: float
    rule: Rule
    evidence: Evidence
    checks: tuple[Check, ...]
    candidate_version: int | None = None
    current_version: int | None = None

    def plain(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return asdict(self)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What of the rule does not hold."""
        return tuple(check.what for check in self.checks if not check.holds)


def evidence(logged: Logged, target: Floats, alpha: float, weight: float | None = None) -> Evidence:
    """What a log says of a candidate. logged: rows that it can be judged by (replay.judged_rows). target: (n, p), the candidate's
    probabilities, fixed before each row. weight: the most that target / logged probability can be, plans / floor; None: the most that it
    is.

    Each bound holds with probability 1 - alpha, all the time. Of cost and latency the scale is the largest part of a row so far.
    """
    told = labelling(logged)
    quality = sample(logged, target, logged.quality, told, progressive=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(target > 0, target / logged.probabilities, 0.0)
    heaviest = max(weight or 1.0, float(ratios.max(initial=1.0)))
    labelled = ~np.isnan(logged.quality)
    most = 1.0 + max(1.0, heaviest - 1.0) / float(told[labelled].min(initial=1.0))
    rows = np.arange(len(logged))
    weights = np.where(labelled, target[rows, logged.chosen] / logged.propensities / told, 0.0)
    quality = replace(quality, predicted=np.clip(quality.predicted, 0.0, 1.0))
    return Evidence(
        requests=len(logged),
        labels=int(labelled.sum()),
        ess=effective(weights, quality.units),
        quality=_bound(quality, alpha, most) if labelled.any() and uncovered(quality) <= MAX_UNCOVERED else None,
        cost=_spent(logged, target, logged.costs, logged.expected_costs, alpha),
        latency=_spent(logged, target, logged.latencies, logged.expected_latencies, alpha),
    )


def _spent(logged: Logged, target: Floats, values: Floats, expected: Floats, alpha: float) -> Bound | None:
    of = sample(logged, target, values, known_share(values), expected, progressive=True)
    if np.isnan(values).all() or uncovered(of) > MAX_UNCOVERED:
        return None
    return _bound(of, alpha, None)


def _bound(of: Sample, alpha: float, most: float | None) -> Bound:
    """Sums by unit, so that rows of one session may depend on each other."""
    terms, _ = differences(of)
    summed = np.asarray(np.bincount(of.units, terms), dtype=np.float64)
    scale = max(float(np.abs(summed).max(initial=0.0)), 1e-12) if most is None else most * float(np.bincount(of.units).max())
    low, high = Moments(scale=scale).update(summed).interval(alpha)
    per_row = len(summed) / len(terms)
    own = dr(replace(of, target=of.logging)).value
    return Bound(float(terms.mean()), low * per_row, high * per_row, own if own is not None else 0.0)


def judged(
    rule: Rule,
    evidence: Evidence,
    candidate: str,
    current: str,
    at: float,
    candidate_version: int | None = None,
    current_version: int | None = None,
) -> Record:
    """The verdict of the rule on this evidence."""
    quality = evidence.quality
    gained = quality is not None and quality.low > -rule.margin
    checks = [
        _at_least("requests", evidence.requests, rule.least),
        _at_least("labels", evidence.labels, rule.least_labels),
        _at_least("effective sample size", evidence.ess, MIN_ESS),
        Check("lower bound of the gain in quality", None if quality is None else quality.low, -rule.margin, gained),
    ]
    for what, bound, share in (("cost", evidence.cost, rule.dearer), ("latency", evidence.latency, rule.slower)):
        if share is not None:
            checks.append(_at_most(f"upper bound of the rise in {what}", bound, share))
    verdict: Verdict = "wait"
    if all(check.holds for check in checks):
        verdict = "promote"
    elif quality is not None and quality.high < -rule.margin and all(check.holds for check in checks[:3]):
        verdict = "reject"
    return Record(verdict, candidate, current, at, rule, evidence, tuple(checks), candidate_version, current_version)


def _at_least(what: str, value: float, bound: float) -> Check:
    return Check(what, value, bound, value >= bound)


def _at_most(what: str, bound: Bound | None, share: float) -> Check:
    if bound is None:
        return Check(what, None, share, False)
    limit = share * bound.current
    return Check(what, bound.high, limit, bound.high <= limit)
