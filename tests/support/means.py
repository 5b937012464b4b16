"""A policy that learns as little as one can: for each plan how many answers were judged, how good they were, and what they looked like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.policy import Encoder
from policies.routing.base import argmax
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.prompt import Prompt
from policies.values.situation import Situation

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """An encoder whose block begins with the number of the prompt's tokens."""

    name: str = "size-1"
    dim: int = 3
    slow: bool = False

    def encode(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        """See Encoder."""
        return np.array([prompt.tokens, 1.0, 0.5], np.float32)[: self.dim]


@dataclass(frozen=True)
class Sums:
    """count, gain: (plans,); moment: (plans, dim)."""

    count: Numbers
    gain: Numbers
    moment: Numbers


class Means:
    """plans: their names."""

    def __init__(self, plans: Sequence[str], dim: int = 3) -> None:
        self.plans = tuple(plans)
        self.dim = dim
        self.encoders: tuple[Encoder, ...] = (Size(dim=dim),)

    def empty(self) -> Sums:
        """See RoutingPolicy."""
        return Sums(np.zeros(len(self.plans)), np.zeros(len(self.plans)), np.zeros((len(self.plans), self.dim)))

    def estimate(self, state: Sums, situation: Situation) -> Scores:
        """The mean; 0.5 of two more answers that nobody gave."""
        means = tuple(float((state.gain[c.index] + 1) / (state.count[c.index] + 2)) for c in situation.candidates)
        return Scores(means, means, means, means)

    def propensities(self, _state: Sums, _situation: Situation, scores: Scores) -> Odds:
        """The best one."""
        return Odds(argmax(scores.score))

    def fold(self, state: Sums, observations: Sequence[Observation]) -> Sums:
        """See RoutingPolicy. A quality of 0.666 cannot be taken, as if there were a fault."""
        count, gain, moment = state.count.copy(), state.gain.copy(), state.moment.copy()
        for each in observations:
            if each.quality == 0.666:
                raise ArithmeticError("this cannot be learnt")
            at = self.plans.index(each.plan)
            count[at] += each.count * each.weight
            gain[at] += each.gain
            moment[at] += each.gain * each.blocks["size-1"].astype(np.float64)
        return Sums(count, gain, moment)

    def statistics(self, state: Sums) -> dict[str, Any]:
        """See RoutingPolicy."""
        return {plan: {"count": float(state.count[at])} for at, plan in enumerate(self.plans)}
