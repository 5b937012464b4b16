"""A policy on an outcome matrix, on-line: it decides, is told what came of it, and goes on.

For each request t = 1, 2, ... of an order: decide() as in serving; reward = outcome[prompt, plan]; after `delay` further requests, and with
probability `labelled`, the outcome is known and folded with the weight 1 / labelled, `batch` requests at a time. Nothing is known to the
policy before that, except of the `warm` prompts, which come first in the order, are not served, and of which every plan's outcome is told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policies.offpolicy.matrix import Matrix
from policies.policy import Encoder, Policy, decide
from policies.values.decision import Decision
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.prompt import Prompt, Turn
from policies.values.situation import Prices, Situation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Blocks = Mapping[str, npt.NDArray[np.float32]]

FREE: Final = Prices()
_BEGIN: Final = 1.6e9


@dataclass(frozen=True)
class Setting:
    """seed: of the order and of who is labelled. requests: at most so many. delay: requests between a decision and its outcome. labelled:
    share of requests whose outcome is ever known. batch: requests between folds. warm: prompts told of before the first. swap: two plans
    (indices) that exchange their outcomes from the middle on. prices: of every request. every_s: time between requests.
    baseline: the plan that is the guarantee; None: the first."""

    seed: int = 0
    requests: int | None = None
    delay: int = 0
    labelled: float = 1.0
    batch: int = 1
    warm: int = 0
    swap: tuple[int, int] | None = None
    prices: Prices = FREE
    every_s: float = 1.0
    baseline: str | None = None


@dataclass(frozen=True)
class Run:
    """What happened, a row for each of t requests. rows: which of the matrix. arms: what was chosen, an index of the plans. propensities:
    of the choice. probabilities: (t, p), 0 for what was not eligible. rewards: of the choice. labelled: whether its outcome was ever told.
    state: the last."""

    rows: Ints
    arms: Ints
    propensities: Floats
    probabilities: Floats
    rewards: Floats
    labelled: npt.NDArray[np.bool_]
    state: Any


def simulate(
    policy: Policy,
    rewards: Floats,
    plans: Sequence[Plan],
    setting: Setting | None = None,
    blocks: Blocks | None = None,
    costs: Floats | None = None,
    latencies: Floats | None = None,
    state: Any = None,
) -> Run:
    """rewards, costs (USD), latencies (s): (n, p); a plan is not eligible where its reward is nan, a prompt without any is left out.
    blocks: (n, d) for each encoder of the policy, by its name. state: to begin with; None: empty. Raises ValueError where a block is
    missing."""
    setting = setting or Setting()
    blocks = _needed(policy, blocks or {})
    known = np.flatnonzero(~np.isnan(rewards).all(axis=1))
    generator = np.random.default_rng(setting.seed)
    order = generator.permutation(known)
    warm, served = order[: setting.warm], order[setting.warm :][: setting.requests]
    told = generator.random(len(served)) < setting.labelled
    world = _World(plans, rewards, costs, latencies, blocks, setting.baseline)
    algorithm = policy.algorithm
    state = algorithm.empty() if state is None else state
    if len(warm):
        state = algorithm.fold(state, world.warm(warm))
    half = len(served) // 2 if setting.swap is not None else len(served)
    a, b = setting.swap or (0, 0)
    exchange = {a: b, b: a}
    arms: list[int] = []
    decisions = []
    pending: list[Observation] = []
    since: list[int] = []
    outcomes = np.empty(len(served))
    weight = 1.0 / setting.labelled if setting.labelled > 0 else 1.0
    for t, (row, label) in enumerate(zip(served.tolist(), told.tolist(), strict=True)):
        if t % setting.batch == 0 and pending:
            ripe = bisect_left(since, t - setting.delay)
            if ripe:
                state = algorithm.fold(state, pending[:ripe])
                del pending[:ripe], since[:ripe]
        decision_id = f"{setting.seed}.{t}"
        situation = world.situation(row, _BEGIN + t * setting.every_s, setting.prices, decision_id)
        decision = decide(policy, state, situation, decision_id)
        arm = situation.candidates[decision.chosen].index
        outcome = world.rewards[row][arm if t < half else exchange.get(arm, arm)]
        if label and outcome == outcome:
            pending.append(world.observed(decision_id, row, arm, outcome, situation, decision, weight))
            since.append(t)
        arms.append(arm)
        decisions.append((situation.candidates, decision.probabilities))
        outcomes[t] = outcome
    probabilities = _spread(decisions, len(plans))
    chosen = np.array(arms, dtype=np.int64)
    return Run(served, chosen, probabilities[np.arange(len(chosen)), chosen], probabilities, outcomes, told, state)


def matrix_blocks(matrix: Matrix, encoders: Sequence[Encoder]) -> dict[str, npt.NDArray[np.float32]]:
    """Features of every prompt, (n, d), as serving makes them of a bare prompt of a user."""
    prompts = [Prompt(turns=(Turn("user", text),), tokens=max(1, len(text.encode()) // 4)) for text in matrix.prompts]
    return {each.name: np.array([each.encode(prompt) for prompt in prompts], dtype=np.float32) for each in encoders}


def category_means(rewards: Floats, categories: Sequence[str]) -> Floats:
    """(n, p): mean reward of the plan over the prompts of the same category; nan where none is known. What regret is counted with."""
    _, group = np.unique(np.array(categories), return_inverse=True)
    known = ~np.isnan(rewards)
    sums = np.zeros((group.max() + 1, rewards.shape[1]))
    counts = np.zeros_like(sums)
    np.add.at(sums, group, np.where(known, rewards, 0.0))
    np.add.at(counts, group, known)
    with np.errstate(invalid="ignore"):
        means: Floats = sums / counts
    return means[group]


def regrets(run: Run, means: Floats, swap: tuple[int, int] | None = None) -> Floats:
    """(t,): mean of the best plan minus mean of the chosen, for each request of a run. means: (n, p) of the matrix; swap: as in its
    setting."""
    of = means[run.rows].copy()
    if swap is not None:
        half = len(run.rows) // 2
        of[half:, list(swap)] = of[half:, list(reversed(swap))]
    lost: Floats = np.nanmax(of, axis=1) - of[np.arange(len(of)), run.arms]
    return lost


class _World:
    """What is asked of the matrix for every request, prepared once."""

    def __init__(
        self,
        plans: Sequence[Plan],
        rewards: Floats,
        costs: Floats | None,
        latencies: Floats | None,
        blocks: Blocks,
        baseline: str | None,
    ) -> None:
        if rewards.ndim != 2 or rewards.shape[1] != len(plans):
            raise ValueError(f"the rewards have the shape {rewards.shape}, but there are {len(plans)} plans")
        self.rewards: list[list[float]] = rewards.tolist()
        self._plans = plans
        self._names = [plan.name for plan in plans]
        if baseline is not None and baseline not in self._names:
            raise ValueError(f"the baseline `{baseline}` is not among the plans")
        self._baseline = 0 if baseline is None else self._names.index(baseline)
        self._blocks = blocks
        self._costs = _table(costs, rewards.shape)
        self._latencies = _table(latencies, rewards.shape)
        self._eligible = ~np.isnan(rewards)
        same = self._eligible.all() and not np.ptp(self._costs, axis=0).any() and not np.ptp(self._latencies, axis=0).any()
        self._shared = self._candidates(0) if same else None

    def situation(self, row: int, now: float, prices: Prices, unit: str) -> Situation:
        candidates = self._shared or self._candidates(row)
        return Situation(candidates, {name: block[row] for name, block in self._blocks.items()}, prices, unit=unit, now=now)

    def observed(
        self, decision_id: str, row: int, arm: int, reward: float, situation: Situation, decision: Decision | None, weight: float = 1.0
    ) -> Observation:
        """decision: None: nothing was drawn, all outcomes are told."""
        return Observation(
            decision_id=decision_id,
            plan=self._names[arm],
            blocks=situation.blocks,
            quality=reward,
            at=situation.now,
            weight=weight,
            propensity=1.0 if decision is None else decision.propensity,
            unit=decision_id,
            cost=float(self._costs[row, arm]),
            latency=float(self._latencies[row, arm]),
            baseline=0.0 if decision is None else self._of_baseline(situation, decision),
        )

    def _of_baseline(self, situation: Situation, decision: Decision) -> float:
        if self._shared is not None:
            return decision.probabilities[self._baseline]
        pairs = zip(situation.candidates, decision.probabilities, strict=True)
        return next((p for each, p in pairs if each.index == self._baseline), 0.0)

    def warm(self, rows: Ints) -> list[Observation]:
        """All that is known of these prompts, from just before the first request."""
        told = []
        for row in rows.tolist():
            situation = self.situation(row, _BEGIN - 1.0, FREE, "")
            told += [
                self.observed(f"warm.{row}.{arm}", row, arm, self.rewards[row][arm], situation, None)
                for arm in np.flatnonzero(self._eligible[row]).tolist()
            ]
        return told

    def _candidates(self, row: int) -> tuple[Candidate, ...]:
        costs, latencies, eligible = self._costs[row].tolist(), self._latencies[row].tolist(), self._eligible[row].tolist()
        return tuple(Candidate(plan, i, costs[i], latencies[i]) for i, plan in enumerate(self._plans) if eligible[i])


def _table(values: Floats | None, shape: tuple[int, ...]) -> Floats:
    return np.broadcast_to(np.zeros(1) if values is None else values, shape)


def _needed(policy: Policy, blocks: Blocks) -> Blocks:
    wanted = [each.name for each in policy.algorithm.encoders]
    missing = [name for name in wanted if name not in blocks]
    if missing:
        raise ValueError(f"the policy `{policy.name}` reads the features {', '.join(f'`{each}`' for each in missing)}, which are not there")
    return {name: np.ascontiguousarray(blocks[name], dtype=np.float32) for name in wanted}


def _spread(decisions: Sequence[tuple[Sequence[Candidate], Sequence[float]]], plans: int) -> Floats:
    table = np.zeros((len(decisions), plans))
    if decisions and all(len(given) == plans for _, given in decisions):
        table[:] = [given for _, given in decisions]
        return table
    for t, (candidates, given) in enumerate(decisions):
        table[t, [each.index for each in candidates]] = given
    return table
