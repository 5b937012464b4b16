"""Rules that stop a vote, replayed on samples: how right they stay, and what they spare.

A rule sees the answers of a question round by round, as it would see a model's, and the same answers judge it: its loss is how much more
often the vote over the first `cap` of them is right. Ties between leading answers count by their share that is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.bench.answers import Answers
from policies.pricing.stopping import CAP, Fixed, Priced, Stop, Threshold, Votes, Window, look_ahead

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DEFAULT: Final = "Beta 0.88, 4 then 2"


@dataclass(frozen=True)
class Course:
    """Votes of every question after 0, 1, ... n answers, all (questions, n + 1). first, second, run: as in Votes; right: the share of the
    leading answers that is right; tokens: so far. sizes: (questions,), how many answers there are; beyond them a row repeats itself."""

    first: Ints
    second: Ints
    run: Ints
    right: Array
    tokens: Array
    sizes: Ints

    def at(self, question: int, n: int) -> Votes:
        """What a rule is told."""
        first, second, run = self.first[question, n], self.second[question, n], self.run[question, n]
        return Votes(int(first), int(second), n, float(self.tokens[question, n]), int(run))


@dataclass(frozen=True)
class Replayed:
    """A rule on questions. right, tokens, samples: (questions,), means over the orders in which their answers came; waits: rounds,
    (orders, questions)."""

    right: Array
    tokens: Array
    samples: Array
    waits: Array

    @property
    def rounds(self) -> Array:
        """Means over the orders, (questions,)."""
        found: Array = self.waits.mean(axis=0)
        return found


def rules(tokens: float, cap: int = CAP) -> Mapping[str, Stop]:
    """All that are compared; the first one is the default. tokens: of a typical answer."""
    return {
        DEFAULT: Threshold(cap=cap),
        "Beta 0.95, 1 by 1": Threshold(0.95, 1, 1, cap),
        "ESC, windows of 4": Window(4, cap),
        "price 0.005, by 4": Priced(0.005, tokens, 4, 4, cap),
        "price 0.004, by 2": Priced(0.004, tokens, 2, 2, cap),
        **{f"fixed {n}": Fixed(n) for n in (1, 3, 5, 10, 20) if n <= cap},
    }


def course(answers: Answers, most: int = CAP) -> Course:
    """The first `most` answers of each question, in their order."""
    keys, right, sizes = answers.keys[:, :most], answers.right[:, :most], np.minimum(answers.sizes, most)
    questions, n = keys.shape
    at = np.arange(questions)
    counts = np.zeros((questions, max(2, int(keys.max(initial=0)) + 1)), dtype=np.int64)
    good = np.zeros(counts.shape, dtype=bool)
    shape = (questions, n + 1)
    first, second, run, share = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    for step in range(n):
        here = step < sizes
        valid = here & (keys[:, step] >= 0)
        counts[at[valid], keys[valid, step]] += 1
        good[at[valid], keys[valid, step]] |= right[valid, step]
        top = np.partition(counts, (-2, -1), axis=1)[:, -2:]
        leads = (counts == top[:, 1:]) & (counts > 0)
        share[:, step + 1] = (leads & good).sum(axis=1) / np.maximum(1, leads.sum(axis=1))
        first[:, step + 1], second[:, step + 1] = top[:, 1], top[:, 0]
        same = valid & (keys[:, step] == keys[:, step - 1]) if step else np.zeros(questions, bool)
        run[:, step + 1] = np.where(here, np.where(same, run[:, step] + 1, valid), run[:, step])
    tokens = np.concatenate([np.zeros((questions, 1)), np.cumsum(answers.tokens[:, :most], axis=1)], axis=1)
    return Course(first, second, run, share, tokens, sizes)


def stops(seen: Course, rule: Stop) -> tuple[Ints, Ints]:
    """After how many answers, and rounds, a rule stops on each question. Where fewer answers are there than its cap, they are its cap."""
    capped = {int(size): _within(rule, int(size)) for size in np.unique(seen.sizes)}
    samples, rounds = np.zeros(len(seen.sizes), np.int64), np.zeros(len(seen.sizes), np.int64)
    for question, size in enumerate(seen.sizes.tolist()):
        n = 0
        while more := capped[size].more(seen.at(question, n)):
            n += more
            rounds[question] += 1
        samples[question] = n
    return samples, rounds


def _within(rule: Stop, size: int) -> Stop:
    return replace(rule, cap=min(rule.cap, size))  # type: ignore[type-var]


def replay(courses: Sequence[Course], rule: Stop) -> Replayed:
    """A rule on the same questions in several orders of their answers."""
    right, tokens, samples, waits = [], [], [], []
    for seen in courses:
        at = np.arange(len(seen.sizes))
        n, rounds = stops(seen, rule)
        right.append(seen.right[at, n])
        tokens.append(seen.tokens[at, n])
        samples.append(n)
        waits.append(rounds.astype(np.float64))
    return Replayed(np.mean(right, axis=0), np.mean(tokens, axis=0), np.mean(samples, axis=0), np.stack(waits))


def uniform(courses: Sequence[Course], n: int) -> Replayed:
    """So many answers for every question, or as many as there are."""
    return replay(courses, Fixed(n))


def priced(seen: Course, budget: float, typical: float) -> Ints:
    """How many answers each question gets when one price for all of them spends the budget, one by one, at least one each.

    budget: tokens in all; typical: tokens of an answer. A question stops at the first index that is not above the price, so what is spent
    falls with the price, and bisection finds the least that fits."""
    index = np.minimum.accumulate(_indices(seen, typical), axis=1)
    at, low, high = np.arange(len(seen.sizes)), 0.0, 1.0
    for _ in range(60):
        price = (low + high) / 2.0
        spent = seen.tokens[at, 1 + (index > price).sum(axis=1)].sum()
        low, high = (low, price) if spent <= budget else (price, high)
    found: Ints = 1 + (index > high).sum(axis=1)
    return found


def _indices(seen: Course, typical: float) -> Array:
    """The index of every question after 1, 2, ... answers, 0 where nothing more can be drawn or change anything: (questions, n)."""
    n = np.arange(1, seen.first.shape[1])
    first, second = seen.first[:, 1:], seen.second[:, 1:]
    top = int(first.max(initial=0))
    table = np.array([[look_ahead(one, two) if two <= one else 0.0 for two in range(top + 1)] for one in range(top + 1)])
    worth = table[first, second] * (first + second) / n
    worth = np.where(first == 0, 1.0, worth * typical * n / np.maximum(seen.tokens[:, 1:], 1e-9))
    left = seen.sizes[:, None] - n
    return np.where((left > 0) & (first - second <= left), worth, 0.0)
