"""Do off-policy intervals cover the truth? Logs drawn from a full outcome matrix, so that the truth is known.

A log: n prompts, drawn with replacement; on each the greedy arm with probability 1 - eps, else any arm. The greedy arm is one of middling
quality, the hardest case for targets that are better; or, adaptive, Thompson sampling over the arms' means with the floor eps, which learns
every 50 requests.
Targets: the two best fixed arms, the best arm of each category, and a softmax over the arms' means in the category.
Truth: mean over all prompts of sum_a pi(a | x) r(x, a). Estimates: DR with the t interval; a log of too little overlap has none and counts
for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from models.best_arm import best
from policies.offpolicy.estimators import Sample, dr
from policies.offpolicy.reward_model import cross_fitted
from policies.offpolicy.simulate import category_means

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REPLICATIONS: Final = 1_000
_LOOKED_UP: Final = 50
_TEMPERATURE: Final = 0.05


@dataclass(frozen=True)
class Outcomes:
    """rewards: (n, p), every one known. features: (n, d), for the reward model. categories: n."""

    rewards: Floats
    features: Floats
    categories: Sequence[str]


@dataclass(frozen=True)
class Logging:
    """eps: total share of exploration. adaptive: what is not explored is learnt. n: requests."""

    eps: float
    n: int
    adaptive: bool = False

    @property
    def name(self) -> str:
        """Of it in tables."""
        return f"{'adaptive ' if self.adaptive else ''}eps {self.eps:g}, n {self.n}"


@dataclass(frozen=True)
class Cell:
    """One target under one kind of log. estimates, lows, highs, ess: one number a replication; low and high nan: refused."""

    logging: Logging
    target: str
    truth: float
    estimates: Floats
    lows: Floats
    highs: Floats
    ess: Floats

    @property
    def coverage(self) -> float:
        """Share of the intervals that hold the truth."""
        told = ~np.isnan(self.lows)
        return float(((self.lows <= self.truth) & (self.truth <= self.highs))[told].mean()) if told.any() else float("nan")

    @property
    def refused(self) -> float:
        """Share of logs that get no interval."""
        return float(np.isnan(self.lows).mean())

    @property
    def half_width(self) -> float:
        """Mean over the intervals."""
        return float(np.nanmean(self.highs - self.lows) / 2) if self.refused < 1 else float("nan")


def targets(outcomes: Outcomes) -> dict[str, Floats]:
    """Name -> (n, p), probabilities."""
    n, p = outcomes.rewards.shape
    ranked = np.argsort(-outcomes.rewards.mean(axis=0), kind="stable")
    means = category_means(outcomes.rewards, outcomes.categories)
    powers = np.exp((means - means.max(axis=1, keepdims=True)) / _TEMPERATURE)
    arms = np.eye(p)
    return {
        "best fixed": np.tile(arms[ranked[0]], (n, 1)),
        "second fixed": np.tile(arms[ranked[min(1, p - 1)]], (n, 1)),
        "best per category": arms[means.argmax(axis=1)],
        "softmax": powers / powers.sum(axis=1, keepdims=True),
    }


def coverage(
    outcomes: Outcomes, logging: Logging, wanted: Mapping[str, Floats], replications: int = REPLICATIONS, seed: int = 0
) -> tuple[Cell, ...]:
    """A cell for each target; all targets are estimated on the same logs."""
    generator = np.random.default_rng([seed, logging.n, round(1e6 * logging.eps), logging.adaptive])
    found = {name: np.full((4, replications), np.nan) for name in wanted}
    units = np.arange(logging.n, dtype=np.int64)
    labelling = np.ones(logging.n)
    plans = outcomes.rewards.shape[1]
    for replication in range(replications):
        rows, chosen, probabilities = drawn(outcomes.rewards, logging, generator)
        rewards = outcomes.rewards[rows, chosen]
        predicted = cross_fitted(outcomes.features[rows], chosen, rewards, units, plans)
        propensities = probabilities[units, chosen]
        for name, target in wanted.items():
            made = dr(Sample(chosen, propensities, probabilities, target[rows], rewards, labelling, predicted, units))
            told = (made.value, made.low, made.high, made.ess)
            found[name][:, replication] = [np.nan if value is None else value for value in told]
    truths = {name: float((target * outcomes.rewards).sum(axis=1).mean()) for name, target in wanted.items()}
    return tuple(Cell(logging, name, truths[name], *found[name]) for name in wanted)


def drawn(rewards: Floats, logging: Logging, generator: np.random.Generator) -> tuple[Ints, Ints, Floats]:
    """A log: rows of the matrix (n,), arms (n,), the probabilities that they were drawn with (n, p)."""
    n, p = logging.n, rewards.shape[1]
    rows = generator.integers(len(rewards), size=n)
    uniform = generator.random(n)
    share = logging.eps / p
    if not logging.adaptive:
        probabilities = np.full((n, p), share)
        probabilities[:, np.argsort(rewards.mean(axis=0), kind="stable")[p // 2]] += 1.0 - logging.eps
        return rows, _arms(probabilities, uniform), probabilities
    probabilities = np.empty((n, p))
    chosen = np.empty(n, dtype=np.int64)
    sums, counts = np.full(p, 0.5), np.ones(p)
    for begin in range(0, n, _LOOKED_UP):
        part = slice(begin, begin + _LOOKED_UP)
        odds = best((sums / counts).tolist(), (0.5 / np.sqrt(counts)).tolist())
        probabilities[part] = (1.0 - logging.eps) * np.array(odds) + share
        arms = chosen[part] = _arms(probabilities[part], uniform[part])
        sums += np.bincount(arms, rewards[rows[part], arms], minlength=p)
        counts += np.bincount(arms, minlength=p)
    return rows, chosen, probabilities


def _arms(probabilities: Floats, uniform: Floats) -> Ints:
    arms: Ints = (probabilities.cumsum(axis=1) < uniform[:, None]).sum(axis=1)
    last: Ints = np.minimum(arms, probabilities.shape[1] - 1)
    return last


def farthest(cells: Sequence[Cell], level: float = 0.95) -> Cell:
    """The cell whose coverage is farthest from the level."""
    return max(cells, key=lambda cell: abs(cell.coverage - level))
