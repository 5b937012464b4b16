"""The rule for scores (policies/pricing/optscale.py) beside OptScale's own, on simulated families of scores (scores.py).

Confidence is measured on the questions within reach, those whose true N* is at most the cap, as the share that gets a score of the level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.bench import scores
from policies.bench.scores import Scores
from policies.pricing.hazard import Prior
from policies.pricing.optscale import MOST, FirstGood, calibrated

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OURS: Final = "first good score, cap from counts"
THEIRS: Final = "normal fitted to 3 scores"
CALIBRATION: Final = 16
BELOW: Final = 0.01
ABOVE: Final = 0.09
"""How far a confidence may lie below its target, and above it."""


@dataclass(frozen=True)
class Target:
    """A family of scores, a level and the confidence to reach it with."""

    family: str
    level: float
    confidence: float

    @property
    def name(self) -> str:
        """As in `beta_85`."""
        return f"{self.family}_{round(100 * self.level)}"

    def gap(self, confidence: npt.ArrayLike) -> Array:
        """How far each lies outside what it may be, 0 inside."""
        found = np.asarray(confidence, dtype=np.float64)
        return np.maximum(0.0, np.maximum(self.confidence - BELOW - found, found - self.confidence - ABOVE))


@dataclass(frozen=True)
class Drawn:
    """Of each question, (questions,): samples drawn, rounds, and whether one of them reached the level."""

    samples: Ints
    rounds: Ints
    reached: Bools


@dataclass(frozen=True)
class Scored:
    """A target on one seed. within: questions within reach. rules: by name; prior: what calibration questions gave."""

    target: Target
    seed: int
    within: Bools
    prior: Prior
    rules: Mapping[str, Drawn]


TARGETS: Final = tuple(Target(*each) for each in scores.LEVELS)


def scored(family: str, seed: int, questions: int, calibration: int) -> list[Scored]:
    """All targets of a family, on the same questions."""
    rng = np.random.default_rng([seed, list(scores.FAMILIES).index(family)])
    made = scores.FAMILIES[family](questions, MOST, rng)
    known = scores.FAMILIES[family](calibration, CALIBRATION, rng)
    fitted = scores.mle(made.values[:, : scores.PEEKS])
    return [_scored(target, seed, made, known, fitted) for target in TARGETS if target.family == family]


def _scored(target: Target, seed: int, made: Scores, known: Scores, fitted: tuple[Array, Array]) -> Scored:
    above = made.above(target.level)
    prior = calibrated(known.values.tolist(), target.level)
    theirs = np.maximum(scores.PEEKS, scores.needed(scores.below(*fitted, target.level), target.confidence, MOST))
    true = scores.needed(1.0 - above, target.confidence, MOST)
    rule = FirstGood(target.level, prior, target.confidence)
    ours = by_rule(made.values, rule)
    equally = np.full(len(true), round(float(ours.samples.mean())))
    rules = {
        OURS: ours,
        "the same, 4 then 2 at once": by_rule(made.values, FirstGood(target.level, prior, target.confidence, first=4, then=2)),
        "the same, hazard >= 0.02": by_rule(made.values, FirstGood(target.level, prior, target.confidence, least=0.02)),
        THEIRS: at_once(made.values, theirs, target.level),
        "the same, first good score": until(made.values, theirs, target.level),
        "true chance, first good score": until(made.values, true, target.level),
        "equally many for every question": at_once(made.values, equally, target.level),
        "64 samples": at_once(made.values, np.full(len(true), MOST), target.level),
    }
    least = 1.0 - math.exp(math.log1p(-target.confidence) / MOST)
    return Scored(target, seed, above >= least, prior, rules)


def by_rule(values: Array, rule: FirstGood) -> Drawn:
    """What a rule draws of these scores, (questions, samples)."""
    samples, rounds = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    for question, row in enumerate(values.tolist()):
        n = 0
        while more := rule.more(row[:n]):
            n += more
            rounds[question] += 1
        samples[question] = n
    return Drawn(samples, rounds, _reached(values, samples, rule.level))


def at_once(values: Array, samples: Ints, level: float) -> Drawn:
    """So many for each question."""
    return Drawn(samples, np.ones(len(samples), np.int64), _reached(values, samples, level))


def until(values: Array, caps: Ints, level: float) -> Drawn:
    """One by one until a score reaches the level, at most so many for each question."""
    good = values >= level
    tries = np.where(good.any(axis=1), good.argmax(axis=1) + 1, values.shape[1] + 1)
    samples = np.minimum(tries, caps)
    return Drawn(samples, samples, tries <= caps)


def _reached(values: Array, samples: Ints, level: float) -> Bools:
    drawn = np.arange(values.shape[1]) < samples[:, None]
    found: Bools = np.any((values >= level) & drawn, axis=1)
    return found


def reached(found: Sequence[Scored], rule: str) -> Array:
    """Of each question within reach, over all seeds: 1 where a score reached the level, else 0. Its mean is the confidence."""
    return np.concatenate([each.rules[rule].reached[each.within] for each in found]).astype(np.float64)


def samples(found: Sequence[Scored], rule: str) -> Array:
    """Of each question within reach."""
    return np.concatenate([each.rules[rule].samples[each.within] for each in found]).astype(np.float64)


def table(found: Sequence[Scored]) -> dict[str, dict[str, float | None]]:
    """Every rule on one target."""
    return {
        rule: {
            "confidence": float(reached(found, rule).mean()),
            "samples": float(samples(found, rule).mean()),
            "on all questions": float(np.concatenate([each.rules[rule].samples for each in found]).mean()),
            "rounds": float(np.concatenate([each.rules[rule].rounds[each.within] for each in found]).mean()),
        }
        for rule in found[0].rules
    }
