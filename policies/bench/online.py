"""Routing that learns while it serves: the product's policies on a matrix of outcomes, many times, each time in another order.

    mean reward      over the requests served; prompts that a policy was told of beforehand (`warm`) are not served
    best fixed       the plan with the best mean over the whole matrix, on the same requests
    worst window     least sum over 2,000 requests in a row of (reward - best fixed's), over 2,000
    reward lost      after a swap of two plans' outcomes half-way: sum over the second half of
                     (mean of the plan that is best now - mean of the chosen plan), means over the prompt's category

Policies are built from the same parameters as in a configuration. What a policy reads is made beforehand, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from models.encoders import topics
from policies import registry
from policies.bench import heads
from policies.bench.data import count, key
from policies.bench.workers import workers
from policies.offpolicy.matrix import Matrix
from policies.offpolicy.simulate import Setting, category_means, simulate
from policies.policy import Encoder, Policy
from policies.values.outcome import Observation
from policies.values.plan import Plan

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Blocks = Mapping[str, npt.NDArray[np.float32]]

WINDOW: Final = 2_000
CATEGORY: Final = "category"
TOPICS: Final = "topics"
_FOLDS: Final = 5
_PART: Final = 4
_BEFORE: Final = 1.0
_SETTING: Final = Setting()


@dataclass(frozen=True)
class Learner:
    """A policy and how it is run. type, params: as in a configuration. block: what it reads, if anything. warm: prompts that it is
    told of with every plan's outcome. setting: see simulate. orders: how many."""

    name: str
    type: str
    params: Mapping[str, Any] = field(default_factory=dict)
    block: str | None = None
    warm: int = 0
    setting: Setting = _SETTING
    orders: int = 24


@dataclass(frozen=True)
class Order:
    """One run. seed: of the order. rows, arms: (t,), which prompt and which plan. propensities, rewards, best: (t,); best: what
    the best fixed plan would have got. alarms: changes that the policy noticed, or thought to."""

    seed: int
    rows: Ints
    arms: Ints
    propensities: Floats
    rewards: Floats
    best: Floats
    alarms: int

    @property
    def worst_window(self) -> float:
        """Of policy minus best fixed, a request."""
        sums = np.concatenate([[0.0], np.cumsum(self.rewards - self.best)])
        width = min(WINDOW, len(self.rewards))
        return float((sums[width:] - sums[:-width]).min() / width)


@dataclass(frozen=True)
class Course:
    """What the learners go through. matrix: every outcome known. blocks: by name, one of each for every draft of labels: order s
    reads the draft s % drafts. fresh: prompts that no other prompt resembles, from which the warm ones are taken."""

    matrix: Matrix
    blocks: Mapping[str, Sequence[npt.NDArray[np.float32]]]
    fresh: Ints

    @property
    def best(self) -> int:
        """The best fixed plan."""
        return int(self.matrix.rewards.mean(axis=0).argmax())

    def warm(self, seed: int, prompts: int) -> Ints:
        """Which prompts a policy is told of before an order."""
        return np.random.default_rng([seed, 1]).permutation(self.fresh)[:prompts]

    def block(self, name: str, seed: int) -> npt.NDArray[np.float32]:
        """What is read under this name in an order."""
        drafts = self.blocks[name]
        return drafts[seed % len(drafts)]


def fresh(prompts: Sequence[str]) -> Ints:
    """Prompts whose text stands there once."""
    keys = [key(prompt) for prompt in prompts]
    seen: dict[str, int] = {}
    for each in keys:
        seen[each] = seen.get(each, 0) + 1
    return np.array([row for row, each in enumerate(keys) if seen[each] == 1], dtype=np.int64)


def one_hot(categories: Sequence[str]) -> npt.NDArray[np.float32]:
    """(n, categories)."""
    names = sorted(set(categories))
    return np.eye(len(names), dtype=np.float32)[[names.index(each) for each in categories]]


@dataclass(frozen=True)
class Inferred:
    """probabilities: (n, categories), of each prompt's category, by a classifier that was not trained on it. accuracy: of the most
    likely one, on prompts without a label. overlap: prompts that a classifier was trained on and applied to, which must be none."""

    probabilities: npt.NDArray[np.float32]
    accuracy: float
    overlap: int


def inferred(embedding: npt.NDArray[np.float32], matrix: Matrix, among: Ints, labels: int, penalty: float, seed: int) -> Inferred:
    """A classifier of categories from `labels` labelled prompts; the labelled ones themselves are told apart by those of other folds."""
    labelled = np.random.default_rng([seed, 2]).permutation(among)[:labels]
    names = sorted(set(matrix.categories))
    rest = np.setdiff1d(np.arange(len(matrix.ids)), labelled)
    out = np.zeros((len(matrix.ids), len(names)), dtype=np.float32)
    overlap = 0
    fold = np.arange(len(labelled)) % _FOLDS
    parts = [(labelled, rest), *((labelled[fold != each], labelled[fold == each]) for each in range(_FOLDS))]
    for training, asked in parts:
        fitted = topics.fit_topics(embedding[training], [matrix.categories[row] for row in training], penalty)
        out[np.ix_(asked, [names.index(name) for name in fitted.classes])] = fitted.probabilities(embedding[asked])
        overlap += count([matrix.prompts[row] for row in training], [matrix.prompts[row] for row in asked])
    guessed = np.array(names)[out[rest].argmax(axis=1)]
    return Inferred(out, float((guessed == np.array(matrix.categories)[rest]).mean()), overlap)


def built(learner: Learner, matrix: Matrix, dim: int, seed: int) -> Policy:
    """The policy, by the registry. Raises ValueError for parameters that cannot work."""
    plans = plans_of(matrix)
    spec = registry.Spec(type=learner.type, params=learner.params, seed=seed)

    def encoder(name: str) -> Encoder:
        return heads.Given(name, dim)

    baseline = plans[int(matrix.rewards.mean(axis=0).argmax())].name
    return registry.policy(learner.type, {learner.type: spec}, plans, baseline, encoder)


def plans_of(matrix: Matrix) -> list[Plan]:
    """A plan for each model."""
    return [Plan(name, name) for name in matrix.plans]


def run(course: Course, learner: Learner, seed: int) -> Order:
    """One order."""
    matrix = course.matrix
    blocks = {} if learner.block is None else {learner.block: course.block(learner.block, seed)}
    policy = built(learner, matrix, sum(block.shape[1] for block in blocks.values()), seed)
    told = course.warm(seed, learner.warm)
    state = policy.algorithm.fold(policy.algorithm.empty(), _known(matrix, told, blocks))
    rewards = matrix.rewards.copy()
    rewards[told] = np.nan  # what it was told of is not asked
    setting = replace(learner.setting, seed=seed)
    found = simulate(policy, rewards, plans_of(matrix), setting, blocks, matrix.costs, matrix.latencies, state)
    drift = getattr(found.state, "drift", None)
    alarms = 0 if drift is None else int(drift.alarms.sum())
    best = matrix.rewards[found.rows, course.best]
    return Order(seed, found.rows, found.arms, found.propensities, found.rewards, best, alarms)


def _known(matrix: Matrix, rows: Ints, blocks: Blocks) -> list[Observation]:
    """Every plan's outcome on these prompts."""
    return [
        Observation(f"warm.{row}.{name}", name, {each: block[row] for each, block in blocks.items()}, float(quality), at=_BEFORE)
        for row in rows.tolist()
        for name, quality in zip(matrix.plans, matrix.rewards[row], strict=True)
    ]


def reward_lost(course: Course, order: Order, swap: tuple[int, int]) -> float:
    """After a swap half-way: see above."""
    means = category_means(course.matrix.rewards, course.matrix.categories)
    exchanged = np.arange(means.shape[1])
    exchanged[list(swap)] = exchanged[list(reversed(swap))]
    best = int(course.matrix.rewards.mean(axis=0)[exchanged].argmax())
    half = len(order.rows) // 2
    rows, arms = order.rows[half:], order.arms[half:]
    return float((means[rows, exchanged[best]] - means[rows, exchanged[arms]]).sum())


def all_orders(course: Course, learners: Sequence[Learner], processes: int, progress: Callable[[str], None]) -> dict[str, list[Order]]:
    """Every learner through all its orders, by its name."""
    found: dict[str, list[Order]] = {learner.name: [] for learner in learners}
    for learner, orders in _runs(course, learners, processes):
        found[learner.name] += orders
        if len(found[learner.name]) == learner.orders:
            mean = np.mean([each.rewards.mean() for each in found[learner.name]])
            progress(f"on-line, {learner.name}: mean reward {mean:.4f} over {learner.orders} orders")
    return found


def _runs(course: Course, learners: Sequence[Learner], processes: int) -> Iterator[tuple[Learner, list[Order]]]:
    """A few orders at a time."""
    jobs = [
        (learner, range(start, min(start + _PART, learner.orders))) for learner in learners for start in range(0, learner.orders, _PART)
    ]
    if processes < 2:
        yield from ((learner, _orders(course, learner, seeds)) for learner, seeds in jobs)
        return
    with workers(processes) as pool:
        results = [pool.submit(_orders, course, learner, seeds) for learner, seeds in jobs]
        yield from ((learner, result.result()) for (learner, _), result in zip(jobs, results, strict=True))


def _orders(course: Course, learner: Learner, seeds: Sequence[int]) -> list[Order]:
    return [run(course, learner, seed) for seed in seeds]
