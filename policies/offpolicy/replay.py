"""A policy on the log of another: how likely it would have made each choice, and what that says of its worth.

Every logged decision is put to the policy again, from its features, candidates and prices, by the functions that serve requests; the floor
is mixed in as there. Rows of which the log can say nothing are left out and counted: later turns (what came before them was the other
policy's doing), what was not explored on, what has no features, what had no candidate that is still a plan.

state: the policy stays as it was when it was fitted. It must not have learnt from the rows that it is judged on. With `learn` it begins
there, is told of each labelled row after that row, and so is judged as it learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.offpolicy.estimators import Estimate, Sample, codes, dr, estimates, gain
from policies.offpolicy.log import Logged
from policies.offpolicy.reward_model import cross_fitted
from policies.offpolicy.reward_model import progressive as before
from policies.policy import Policy, decide
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Prices, Situation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class ReplayError(ValueError):
    """The policy cannot be put to this log; says why."""


@dataclass(frozen=True)
class Component:
    """One kind of what came of the requests: quality, cost (USD) or latency (s). target: of the policy, by each estimator; the first is the
    one to go by. logged: of the policy that the log is of. gain: target minus logged."""

    target: tuple[Estimate, ...]
    logged: Estimate
    gain: Estimate


@dataclass(frozen=True)
class Report:
    """rows: of the log. left_out: how many, by reason. absent: plans that were never a candidate, of which the
    figures know nothing. shares: of the requests, by plan, that the policy would have given it, and that the
    log's gave it."""

    policy: str
    rows: int
    evaluated: int
    left_out: dict[str, int]
    absent: tuple[str, ...]
    shares: dict[str, tuple[float, float]]
    quality: Component
    cost: Component
    latency: Component


def replay(
    policy: Policy,
    plans: Sequence[Plan],
    logged: Logged,
    state: Any = None,
    *,
    learn: bool = False,
    batch: int = 1,
    baseline: str | None = None,
    first_only: bool = True,
    clip: float | None = None,
    switch: float | None = None,
) -> Report:
    """state: None: empty. batch: rows between folds, where it learns. baseline: the plan that is the guarantee; None: the first.
    first_only: leave out later turns. clip, switch: see estimators.

    Raises ReplayError where the log does not hold the features that the policy reads, or nothing is left to judge by.
    """
    left_out, rows = judged_rows(policy, plans, logged, first_only)
    target = target_probabilities(policy, plans, logged, rows, state, learn=learn, batch=batch, baseline=baseline)
    judged = logged.at(rows)
    shares = {
        name: (float(target[:, i].mean()), float(judged.probabilities[:, i].mean()))
        for i, name in enumerate(judged.plans)
        if judged.eligible[:, i].any()
    }
    quality = sample(judged, target, judged.quality, labelling(judged))
    return Report(
        policy=policy.name,
        rows=len(logged),
        evaluated=len(rows),
        left_out=left_out,
        absent=tuple(plan.name for plan in plans if plan.name not in shares),
        shares=shares,
        quality=_component(quality, _first_dr(estimates(quality, clip, switch))),
        cost=_spent(judged, target, judged.costs, judged.expected_costs),
        latency=_spent(judged, target, judged.latencies, judged.expected_latencies),
    )


def judged_rows(policy: Policy, plans: Sequence[Plan], logged: Logged, first_only: bool = True) -> tuple[dict[str, int], Ints]:
    """Which rows the policy can be judged by, and how many are left out, by reason. Raises ReplayError where there are none."""
    names = [each.name for each in policy.algorithm.encoders]
    missing = [f"`{name}`" for name in names if name not in logged.blocks]
    if missing and len(logged):
        raise ReplayError(f"the policy `{policy.name}` reads the features {', '.join(missing)}, which the log does not hold")
    known = np.isin(np.array(logged.plans), [plan.name for plan in plans])
    reasons = {
        "later turns": ~logged.first if first_only else np.zeros(len(logged), dtype=np.bool_),
        "not explored on": ~logged.explore,
        "without features": np.zeros(len(logged), dtype=np.bool_),
        "without a candidate that is still a plan": ~(logged.eligible & known).any(axis=1),
    }
    for name in names if len(logged) else ():
        reasons["without features"] |= np.isnan(logged.blocks[name]).any(axis=1)
    left = np.ones(len(logged), dtype=np.bool_)
    counts = {}
    for reason, out in reasons.items():
        counts[reason] = int((left & out).sum())
        left &= ~out
    left_out = {reason: count for reason, count in counts.items() if count}
    if not left.any():
        why = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        raise ReplayError(f"none of {len(logged):,} rows can be judged by: {why or 'the log is empty'}")
    return left_out, np.flatnonzero(left)


def target_probabilities(
    policy: Policy,
    plans: Sequence[Plan],
    logged: Logged,
    rows: Ints,
    state: Any = None,
    *,
    learn: bool = False,
    batch: int = 1,
    baseline: str | None = None,
) -> Floats:
    """(len(rows), p): what the policy would have drawn from, in columns as the log's. rows: in rising order."""
    guarantee = plans[0].name if baseline is None else baseline
    algorithm = policy.algorithm
    state = algorithm.empty() if state is None else state
    names = [each.name for each in algorithm.encoders]
    columns = {logged.plans.index(plan.name): (i, plan) for i, plan in enumerate(plans) if plan.name in logged.plans}
    target = np.zeros((len(rows), len(logged.plans)))
    place = {row: i for i, row in enumerate(rows.tolist())}
    pending: list[Observation] = []
    for row in range(len(logged)) if learn else rows.tolist():
        if len(pending) >= batch:
            state = algorithm.fold(state, pending)
            pending = []
        blocks = {name: logged.blocks[name][row] for name in names}
        at = place.get(row)
        if at is not None:
            situation, used = _situation(logged, row, columns, blocks)
            target[at, used] = decide(policy, state, situation, logged.ids[row]).probabilities
        if learn and not np.isnan(logged.quality[row]) and not any(np.isnan(block).any() for block in blocks.values()):
            pending.append(_observed(logged, row, blocks, guarantee))
    return target


def sample(
    logged: Logged, target: Floats, rewards: Floats, labelling: Floats, expected: Floats | None = None, *, progressive: bool = False
) -> Sample:
    """What the estimators take, with a reward model over all features that every row has: cross-fitted, or of earlier rows only. expected:
    (n, p), what is known of the rewards beforehand; the model predicts what is left."""
    units = codes(logged.sessions)
    whole = [block for _, block in sorted(logged.blocks.items()) if not np.isnan(block).any()]
    features = np.concatenate([np.zeros((len(logged), 0)), *whole], axis=1).astype(np.float64)
    base = np.zeros_like(target) if expected is None else expected
    left = rewards - base[np.arange(len(logged)), logged.chosen]
    plans = len(logged.plans)
    if progressive:
        predicted = base + before(features, logged.chosen, left, plans)
    else:
        predicted = base + cross_fitted(features, logged.chosen, left, units, plans)
    return Sample(logged.chosen, logged.propensities, logged.probabilities, target, rewards, labelling, predicted, units)


def _situation(logged: Logged, row: int, columns: dict[int, tuple[int, Plan]], blocks: dict[str, Any]) -> tuple[Situation, list[int]]:
    used = [column for column in np.flatnonzero(logged.eligible[row]).tolist() if column in columns]
    # In the configured order, as in serving.
    used.sort(key=lambda column: columns[column][0])
    candidates = tuple(
        Candidate(columns[at][1], columns[at][0], float(logged.expected_costs[row, at]), float(logged.expected_latencies[row, at]))
        for at in used
    )
    return Situation(
        candidates=candidates,
        blocks=blocks,
        prices=Prices(float(logged.cost_prices[row]), float(logged.latency_prices[row])),
        unit=logged.units[row],
        explore=bool(logged.explore[row]),
        now=float(logged.created[row]),
        tenant=logged.tenants[row],
    ), used


def _observed(logged: Logged, row: int, blocks: dict[str, Any], baseline: str) -> Observation:
    return Observation(
        decision_id=logged.ids[row],
        plan=logged.plans[logged.chosen[row]],
        blocks=blocks,
        quality=float(logged.quality[row]),
        at=float(logged.created[row]),
        weight=1.0 / float(logged.labelling[row]),
        propensity=float(logged.propensities[row]),
        unit=logged.units[row],
        cost=float(np.nan_to_num(logged.costs[row])),
        latency=float(np.nan_to_num(logged.latencies[row])),
        tenant=logged.tenants[row],
        baseline=float(logged.probabilities[row, logged.plans.index(baseline)]) if baseline in logged.plans else 0.0,
    )


def labelling(logged: Logged) -> Floats:
    """Labelling probabilities whose inverses sum to the number of rows (Hajek 1971): a source that may speak of every row, but does not,
    such as the callers' feedback, is taken to fall silent at random."""
    labelled = ~np.isnan(logged.quality)
    share = float(np.where(labelled, 1.0 / logged.labelling, 0.0).mean()) if len(logged) else 1.0
    return logged.labelling * (share or 1.0)


def known_share(values: Floats) -> Floats:
    """Labelling probabilities of cost or latency: known of nearly every row; those that are not are taken to be missing at random."""
    share = float((~np.isnan(values)).mean()) if len(values) else 1.0
    return np.full(len(values), share or 1.0)


def _spent(logged: Logged, target: Floats, values: Floats, expected: Floats) -> Component:
    of = sample(logged, target, values, known_share(values), expected)
    return _component(of, (dr(of),))


def _component(of: Sample, target: tuple[Estimate, ...]) -> Component:
    return Component(target, dr(replace(of, target=of.logging)), gain(of))


def _first_dr(found: tuple[Estimate, ...]) -> tuple[Estimate, ...]:
    return tuple(sorted(found, key=lambda each: each.method != "dr"))
