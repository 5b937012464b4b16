"""Simulated answers: what repeated samples of a model look like, by a few fitted numbers instead of the answers themselves.

    p           of a question, the chance of a right answer: a mixture of 0, of 1 and of two Betas
    wrong ones  a Pitman-Yor urn per question: discount d, ln theta = a + b l + c l^2 + s N(0, 1), l = logit p within [-4, 4]
    right ones  a Chinese restaurant: the same answer in other spellings
    tokens      ln t = m + b logit(p') + c right + N(0, u) per question + N(0, e) per sample, p' = (p N + 1/2) / (N + 1)

The profiles were fitted to samples of five models on DATE, GSM8K and MATH-500, and reproduce accuracy, agreement and length of those within
sampling error; beyond 20, 10, 10 and 5 answers (mid and easy, weak, scattered, maths) they extrapolate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LOGIT: Final = 4.0
_THETA: Final = (0.01, 300.0)


@dataclass(frozen=True)
class Profile:
    """Fitted numbers. weights: of 0, of 1, of the first Beta, of the second; wrong: d and a, b, c, s; spellings: mean and deviation of
    ln theta; length: m, b, c, u, e (the module says what they are)."""

    source: str
    weights: tuple[float, float, float, float]
    first: tuple[float, float]
    second: tuple[float, float]
    wrong: tuple[float, float, float, float, float]
    spellings: tuple[float, float]
    length: tuple[float, float, float, float, float]


PROFILES: Final[Mapping[str, Profile]] = {
    "mid": Profile(
        "DATE, GPT-3.5, chain of thought, temperature 0.8",
        (0.090, 0.042, 0.361, 0.508),
        (0.351, 0.355),
        (2.463, 0.514),
        (0.5, -2.697, -2.039, -0.766, 2.224),
        (-5.10, 0.135),
        (3.667, -0.024, -0.075, 0.281, 0.203),
    ),
    "easy": Profile(
        "DATE, GPT-3.5, program of thought, temperature 0.8",
        (0.088, 0.332, 0.399, 0.181),
        (1.221, 1.364),
        (148.4, 11.22),
        (0.2, -3.375, 0.078, 0.110, 1.775),
        (-5.10, 0.135),
        (4.243, -0.028, -0.080, 0.245, 0.261),
    ),
    "weak": Profile(
        "DATE, Llama-2-13B, chain of thought",
        (0.137, 0.043, 0.258, 0.562),
        (1.206, 5.830),
        (2.880, 1.217),
        (0.5, -0.786, -0.099, 0.016, 1.606),
        (-2.51, 0.135),
        (3.579, -0.042, 0.018, 0.181, 0.144),
    ),
    "scattered": Profile(
        "GSM8K, Llama-2-13B, program of thought",
        (0.031, 0.005, 0.566, 0.398),
        (0.576, 5.622),
        (2.498, 0.986),
        (0.3, 0.427, -0.532, -0.088, 0.981),
        (-8.0, 0.551),
        (4.010, -0.038, -0.009, 0.292, 0.279),
    ),
    "maths": Profile(
        "MATH-500, Qwen2-7B",
        (0.095, 0.159, 0.361, 0.385),
        (0.756, 2.911),
        (5.814, 0.908),
        (0.1, 1.409, -0.349, -0.006, 1.322),
        (-4.39, 1.505),
        (5.733, -0.156, -0.117, 0.389, 0.268),
    ),
}


@dataclass(frozen=True)
class Answers:
    """Samples of questions, all (questions, samples). keys: which answer, numbered per question from 0; -1: none that could be read.
    right: whether it is right. tokens: its length. sizes: (questions,), samples of each; what lies beyond is padding: -1, False, 0."""

    keys: Ints
    right: Bools
    tokens: Array
    sizes: Ints

    def shuffled(self, rng: np.random.Generator) -> Answers:
        """The samples of each question in another order."""
        noise = np.where(np.arange(self.keys.shape[1]) < self.sizes[:, None], rng.random(self.keys.shape), 2.0)
        order = np.argsort(noise, axis=1)
        keys, right = np.take_along_axis(self.keys, order, axis=1), np.take_along_axis(self.right, order, axis=1)
        return Answers(keys, right, np.take_along_axis(self.tokens, order, axis=1), self.sizes)


def simulate(profile: Profile, questions: int, samples: int, rng: np.random.Generator) -> Answers:
    """Answers of this profile."""
    p = _chances(profile, questions, rng)
    logit = np.log(np.clip(p, 1e-9, 1.0 - 1e-9)) - np.log(np.clip(1.0 - p, 1e-9, 1.0))
    level = np.clip(logit, -_LOGIT, _LOGIT)
    right = rng.random((questions, samples)) < p[:, None]
    discount, a, b, c, s = profile.wrong
    wrong_theta = np.exp(a + b * level + c * level**2 + s * rng.standard_normal(questions))
    right_theta = np.exp(rng.normal(*profile.spellings, questions))
    wrong = _urn(~right, discount, np.clip(wrong_theta, *_THETA), rng)
    spelt = _urn(right, 0.0, right_theta, rng)
    keys = numbered(np.where(right, 2 * spelt, 2 * wrong + 1))
    return Answers(keys, right, _lengths(profile, p, right, rng), np.full(questions, samples))


def _chances(profile: Profile, questions: int, rng: np.random.Generator) -> Array:
    weights = np.array(profile.weights)
    kind = rng.choice(4, size=questions, p=weights / weights.sum())
    first, second = rng.beta(*profile.first, questions), rng.beta(*profile.second, questions)
    return np.choose(kind, [np.zeros(questions), np.ones(questions), first, second])


def _urn(drawn: Bools, discount: float, theta: Array, rng: np.random.Generator) -> Ints:
    """A Pitman-Yor urn for each row: the table at which each drawn sample sits, numbered from 0; 0 where none is drawn."""
    rows, samples = drawn.shape
    sizes = np.zeros((rows, samples + 1))
    tables = np.zeros(rows, dtype=np.int64)
    seated = np.zeros((rows, samples), dtype=np.int64)
    at = np.arange(rows)
    for column in range(samples):
        weights = np.where(sizes > 0, sizes - discount, 0.0)
        weights[at, tables] = theta + discount * tables
        bounds = np.cumsum(weights, axis=1)
        seat = (rng.random((rows, 1)) * bounds[:, -1:] >= bounds).sum(axis=1)
        seat = np.minimum(seat, tables)
        new = drawn[:, column]
        seated[new, column] = seat[new]
        sizes[at[new], seat[new]] += 1.0
        tables += new & (seat == tables)
    return seated


def _lengths(profile: Profile, p: Array, right: Bools, rng: np.random.Generator) -> Array:
    m, b, c, per_question, per_sample = profile.length
    rows, samples = right.shape
    smoothed = (p * samples + 0.5) / (samples + 1)
    mean = m + b * np.log(smoothed / (1.0 - smoothed)) + rng.normal(0.0, per_question, rows)
    lengths: Array = np.exp(mean[:, None] + c * right + rng.normal(0.0, per_sample, right.shape))
    return lengths


def numbered(keys: Ints) -> Ints:
    """The same answers, numbered in each row from 0 in the order of their first appearance; what is negative becomes -1."""
    found = np.empty_like(keys)
    for row, values in enumerate(keys.tolist()):
        seen: dict[int, int] = {}
        found[row] = [-1 if value < 0 else seen.setdefault(value, len(seen)) for value in values]
    return found
