"""Simulated verifier scores: four families of what the scores of one question look like, and OptScale's own rule on them.

    beta          Beta, mean Beta(6, 3), concentration exp N(ln 12, 0.5)
    normal        normal on [0, 1], mean N(0.65, 0.15), deviation U(0.08, 0.25)
    bimodal       good answers around 0.95, bad ones around 0.3; the share of good ones Beta(1, 2)
    rare          a bulk around 0.5, and with a chance of Beta(1, 8) a score between 0.85 and 1

OptScale (Wang et al. 2026, arXiv 2506.22376) fits a normal on [0, 1] to the first scores by maximum likelihood, and draws as many samples
as it takes for the best of them to reach `least` with the confidence: N* = ln(1 - confidence) / ln F(least), rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PEEKS: Final = 3
_CENTRES: Final = (-2.0, 3.0)
_SPREADS: Final = (math.log(1e-3), math.log(2.0))
_ZOOMS: Final = 4
_SIDE: Final = 9
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True)
class Scores:
    """values: (questions, samples), 0 to 1. above: the true chance that a score of each question reaches a level."""

    values: Array
    above: Callable[[float], Array]


def beta(questions: int, samples: int, rng: np.random.Generator) -> Scores:
    """A Beta for each question."""
    mean = rng.beta(6.0, 3.0, questions)
    size = np.exp(rng.normal(math.log(12.0), 0.5, questions))
    a, b = mean * size, (1.0 - mean) * size
    grid = (np.arange(4_000) + 0.5) / 4_000

    def above(least: float) -> Array:
        logs = (a[:, None] - 1.0) * np.log(grid) + (b[:, None] - 1.0) * np.log1p(-grid)
        mass = np.exp(logs - logs.max(axis=1, keepdims=True))
        found: Array = mass[:, grid >= least].sum(axis=1) / mass.sum(axis=1)
        return found

    return Scores(rng.beta(a[:, None], b[:, None], (questions, samples)), above)


def normal(questions: int, samples: int, rng: np.random.Generator) -> Scores:
    """A normal on [0, 1] for each question."""
    mean, spread = rng.normal(0.65, 0.15, questions), rng.uniform(0.08, 0.25, questions)
    return Scores(_truncated(mean[:, None], spread[:, None], (questions, samples), rng), lambda least: 1.0 - below(mean, spread, least))


def bimodal(questions: int, samples: int, rng: np.random.Generator) -> Scores:
    """Good and bad answers."""
    share = rng.beta(1.0, 2.0, questions)
    shape = (questions, samples)
    good, bad = (_truncated(np.array(mean), np.array(spread), shape, rng) for mean, spread in ((0.95, 0.03), (0.3, 0.1)))

    def above(least: float) -> Array:
        one, two = (1.0 - below(np.array([mean]), np.array([spread]), least) for mean, spread in ((0.95, 0.03), (0.3, 0.1)))
        return share * one + (1.0 - share) * two

    return Scores(np.where(rng.random(shape) < share[:, None], good, bad), above)


def rare(questions: int, samples: int, rng: np.random.Generator) -> Scores:
    """Mediocre answers, and now and then a good one."""
    share = rng.beta(1.0, 8.0, questions)
    shape = (questions, samples)
    bulk = _truncated(np.array(0.5), np.array(0.1), shape, rng)

    def above(least: float) -> Array:
        bulk_above = 1.0 - below(np.array([0.5]), np.array([0.1]), least)
        return share * min(1.0, (1.0 - least) / 0.15) + (1.0 - share) * bulk_above

    return Scores(np.where(rng.random(shape) < share[:, None], rng.uniform(0.85, 1.0, shape), bulk), above)


FAMILIES: Final[Mapping[str, Callable[[int, int, np.random.Generator], Scores]]] = {
    "beta": beta,
    "normal": normal,
    "bimodal": bimodal,
    "rare": rare,
}


def _truncated(mean: Array, spread: Array, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """By rejection: at least a sixth of what is drawn lies in [0, 1] for the means and deviations of this module."""
    values = rng.normal(mean, spread, shape)
    while (out := (values < 0.0) | (values > 1.0)).any():
        values = np.where(out, rng.normal(mean, spread, shape), values)
    return values


def below(mean: Array, spread: Array, least: float) -> Array:
    """F(least) of a normal on [0, 1]."""
    found: Array = _mass(mean, spread, least) / _mass(mean, spread, 1.0)
    return np.clip(found, 0.0, 1.0)


def _mass(mean: Array, spread: Array, top: float) -> Array:
    """Of the normal between 0 and `top`, from the side on which nothing cancels: for a mean below 0 both tails are tiny."""
    z0, z1 = -mean / (spread * math.sqrt(2.0)), (top - mean) / (spread * math.sqrt(2.0))
    inner = _float(_erf(z1)) - _float(_erf(z0))
    upper = _float(_erfc(z0)) - _float(_erfc(z1))
    lower = _float(_erfc(-z1)) - _float(_erfc(-z0))
    return np.maximum(np.where(z0 > 0.0, upper, np.where(z1 < 0.0, lower, inner)) / 2.0, 1e-300)


def _float(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def mle(values: Array) -> tuple[Array, Array]:
    """Means and deviations of the normals on [0, 1] that make each row most likely, within [-2, 3] and [0.001, 2]: the best of a grid, then
    of finer ones around it. values: (questions, scores)."""
    n = values.shape[1]
    total, squares = values.sum(axis=1)[:, None], (values**2).sum(axis=1)[:, None]
    centre, spread = np.meshgrid(np.linspace(*_CENTRES, 101), np.linspace(*_SPREADS, 61), indexing="ij")
    mean, log = np.broadcast_to(centre.ravel(), (1, centre.size)), np.broadcast_to(spread.ravel(), (1, spread.size))
    best_mean, best_log = _best(mean, log, n, total, squares)
    step_mean, step_log = 5.0 / 100, (_SPREADS[1] - _SPREADS[0]) / 60
    offsets = np.linspace(-1.0, 1.0, _SIDE)
    one, two = (each.ravel() for each in np.meshgrid(offsets, offsets, indexing="ij"))
    for _ in range(_ZOOMS):
        means = np.clip(best_mean[:, None] + step_mean * one, *_CENTRES)
        logs = np.clip(best_log[:, None] + step_log * two, *_SPREADS)
        best_mean, best_log = _best(means, logs, n, total, squares)
        step_mean, step_log = step_mean / 3.0, step_log / 3.0
    return best_mean, np.exp(best_log)


def _best(mean: Array, log: Array, n: int, total: Array, squares: Array) -> tuple[Array, Array]:
    spread = np.exp(log)
    constant = -n * (log + np.log(_mass(mean, spread, 1.0)))
    likelihood = constant - (squares - 2.0 * mean * total + n * mean**2) / (2.0 * spread**2)
    at = likelihood.argmax(axis=1)[:, None]
    means, logs = np.broadcast_to(mean, likelihood.shape), np.broadcast_to(log, likelihood.shape)
    return np.take_along_axis(means, at, axis=1)[:, 0], np.take_along_axis(logs, at, axis=1)[:, 0]


def needed(below_least: Array, confidence: float, cap: int) -> Ints:
    """N*: samples until the best reaches the level with the confidence, at most `cap`, at least 1. below_least: F of the level."""
    below_least = np.clip(below_least, 1e-300, 1.0 - 1e-15)
    found: Ints = np.clip(np.ceil(math.log(1.0 - confidence) / np.log(below_least)), 1, cap).astype(np.int64)
    return found


LEVELS: Final = (
    ("beta", 0.85, 0.9),
    ("beta", 0.95, 0.95),
    ("normal", 0.85, 0.9),
    ("normal", 0.95, 0.9),
    ("bimodal", 0.85, 0.9),
    ("bimodal", 0.95, 0.95),
    ("rare", 0.85, 0.9),
    ("rare", 0.95, 0.95),
)
"""Family, level, confidence."""
