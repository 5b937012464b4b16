"""An exact verifier on pass counts: how many calls it takes to solve how much, in expectation over all orders of the samples.

Of n samples of a problem c pass. A random k of them all fail with chance C(n - c, k) / C(n, k); so the k-th call is made with the chance
that k - 1 have failed, and a problem is solved within a cap with the chance that not all of them fail, which is pass@cap without bias.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.bench.bootstrap import RESAMPLES, Interval, interval
from policies.pricing.hazard import Prior

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FILE: Final = Path(__file__).parent / "data" / "decoding" / "passes.csv"
SHARE: Final = 0.95


@dataclass(frozen=True)
class Counts:
    """Samples and passes of each problem, (problems,) each."""

    samples: Ints
    passes: Ints

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """As a prior is fitted to."""
        return list(zip(self.samples.tolist(), self.passes.tolist(), strict=True))


@dataclass(frozen=True)
class Frontier:
    """By cap 0, 1, ... n: the mean over problems. solved: within the cap; calls: with a stop at the first pass; fixed: calls without one.
    solvable: share of problems with a pass at all; uniform: calls when every sample is drawn."""

    solved: Array
    calls: Array
    fixed: Array
    solvable: float
    uniform: float

    def cap(self, share: float = SHARE) -> int:
        """The least one that solves this share of what can be solved."""
        return int(np.argmax(self.solved >= share * self.solvable - 1e-12))

    def calls_share(self, cap: int) -> float:
        """Calls up to a cap, over uniform's."""
        return float(self.calls[cap] / self.uniform)


def published() -> dict[str, Counts]:
    """HumanEval by CodeGen-16B and the Game of 24 by GPT-4 with two prompts, 100 samples a problem (data/decoding/README.md)."""
    found: dict[str, list[tuple[int, int]]] = {}
    with FILE.open(newline="") as source:
        for row in csv.DictReader(source):
            found.setdefault(row["set"], []).append((int(row["samples"]), int(row["passes"])))
    return {name: counts(pairs) for name, pairs in found.items()}


def digest() -> str:
    """SHA-256 of the file."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def counts(pairs: Sequence[tuple[int, int]]) -> Counts:
    """Of (samples, passes)."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Counts(table[:, 0], table[:, 1])


def failing(found: Counts, most: int) -> Array:
    """The chance that k samples of a problem all fail, k = 0 ... most: (problems, most + 1). Beyond n samples it stays as after n."""
    chance = np.ones((len(found.samples), most + 1))
    for k in range(most):
        left = found.samples - k
        step = np.where(left > 0, np.maximum(0, left - found.passes) / np.maximum(1, left), 1.0)
        chance[:, k + 1] = chance[:, k] * step
    return chance


def pass_at(found: Counts, k: int) -> float | None:
    """pass@k without bias; None where a problem has fewer samples."""
    if k > int(found.samples.min()):
        return None
    return float(1.0 - failing(found, k)[:, k].mean())


def frontier(found: Counts) -> Frontier:
    """All caps."""
    most = int(found.samples.max())
    fail = failing(found, most)
    drawn = np.arange(most)[None, :] < found.samples[:, None]
    calls = np.concatenate([[0.0], np.cumsum((fail[:, :-1] * drawn).mean(axis=0))])
    fixed = np.concatenate([[0.0], np.cumsum(drawn.mean(axis=0))])
    return Frontier(1.0 - fail.mean(axis=0), calls, fixed, float((found.passes > 0).mean()), float(found.samples.mean()))


def within(found: Counts, cap: int) -> tuple[Array, Array]:
    """Calls up to a cap, with a stop at the first pass, and the chance of a pass, (problems,) each: what the frontier is the mean of."""
    fail = failing(found, cap)
    drawn = np.arange(cap)[None, :] < found.samples[:, None]
    return (fail[:, :-1] * drawn).sum(axis=1), 1.0 - fail[:, -1]


def calls_interval(found: Counts, share: float = SHARE) -> Interval:
    """Of the calls for this share of what can be solved, over uniform's; every resample of problems has its own cap."""
    most, n = int(found.samples.max()), len(found.samples)
    fail = failing(found, most)
    drawn = np.arange(most)[None, :] < found.samples[:, None]
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES).astype(np.float64)
    solved = n - weights @ fail
    solvable = weights @ (found.passes > 0)
    calls = np.concatenate([np.zeros((RESAMPLES, 1)), np.cumsum(weights @ (fail[:, :-1] * drawn), axis=1)], axis=1)
    caps = np.argmax(solved >= share * solvable[:, None] - 1e-9, axis=1)
    line = frontier(found)
    return interval(line.calls_share(line.cap(share)), calls[np.arange(RESAMPLES), caps] / (weights @ found.samples))


def oracle(found: Counts) -> tuple[Array, Array]:
    """Calls and solved, means over problems, of who knows the counts: problems that pass most often first, each until it passes."""
    order = np.argsort(-found.passes / found.samples, kind="stable")
    order = order[found.passes[order] > 0]
    tries = (found.samples[order] + 1) / (found.passes[order] + 1)
    n = len(found.samples)
    return np.concatenate([[0.0], np.cumsum(tries) / n]), np.arange(len(order) + 1) / n


def caps_by_hazard(prior: Prior, most: int, hazards: Sequence[float]) -> list[int]:
    """The cap that each least hazard amounts to."""
    return [int(min(most, prior.cap(hazard))) for hazard in hazards]
