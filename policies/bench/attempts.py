"""What attempts cost, and what a right answer costs.

cost-of-pass    cost of an attempt / chance that it is right     Erol et al. 2025, arXiv 2504.13359; infinite where none is right
accuracy        with the interval of Wilson (1927), 95 %
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_Z: Final = 1.959964
MILLION: Final = 1e6


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    input: float
    output: float

    def cost(self, prompt: int, sampled: int) -> float:
        """USD of tokens that were read, and that were sampled."""
        return (prompt * self.input + sampled * self.output) / MILLION


@dataclass(frozen=True)
class Attempt:
    """One question answered. calls, tokens: of all models; tokens: sampled. cost: USD. seconds: that the caller waited. weight: of
    questions; the same one attempted k times counts 1 / k each."""

    family: str
    number: int
    right: bool
    calls: int
    prompt: int
    tokens: int
    cost: float
    seconds: float = 0.0
    weight: float = 1.0


def wilson(share: float, trials: float) -> tuple[float, float]:
    """The interval of a share, 95 %."""
    if not trials:
        return 0.0, 1.0
    middle = share + _Z**2 / (2 * trials)
    half = _Z * math.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2))
    scale = 1 + _Z**2 / trials
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def cost_of_pass(attempts: Sequence[Attempt]) -> float | None:
    """USD per right answer; None: none is right."""
    right = sum(each.weight for each in attempts if each.right)
    return sum(each.weight * each.cost for each in attempts) / right if right else None


def row(attempts: Sequence[Attempt], single: Sequence[Attempt], timed: bool) -> dict[str, float | None]:
    """A line of a table. `x single`: how many times the cost-of-pass of those. USD are of a million right answers. timed: seconds mean
    something."""
    trials = sum(each.weight for each in attempts)

    def mean(values: Sequence[float]) -> float:
        return sum(each.weight * value for each, value in zip(attempts, values, strict=True)) / trials

    share = mean([each.right for each in attempts])
    low, high = wilson(share, trials)
    passing, plain = cost_of_pass(attempts), cost_of_pass(single)
    return {
        "right": share,
        "from": low,
        "to": high,
        "calls": mean([each.calls for each in attempts]),
        "prompt tokens": mean([each.prompt for each in attempts]),
        "sampled tokens": mean([each.tokens for each in attempts]),
        **({"seconds": mean([each.seconds for each in attempts])} if timed else {}),
        "USD per million right": None if passing is None else passing * MILLION,
        "x single": None if passing is None or not plain else passing / plain,
    }


def by_way(found: Mapping[str, Sequence[Attempt]], single: str, timed: bool) -> dict[str, dict[str, float | None]]:
    """A line of each way to answer, beside the one named `single`."""
    return {way: row(attempts, found[single], timed) for way, attempts in found.items()}


def by_family(found: Mapping[str, Sequence[Attempt]]) -> dict[str, dict[str, float | None]]:
    """Of each way to answer, the share that is right in each family."""
    families = dict.fromkeys(each.family for attempts in found.values() for each in attempts)
    return {
        way: {family: _share([each for each in attempts if each.family == family]) for family in families}
        for way, attempts in found.items()
    }


def _share(attempts: Sequence[Attempt]) -> float | None:
    trials = sum(each.weight for each in attempts)
    return sum(each.weight for each in attempts if each.right) / trials if trials else None
