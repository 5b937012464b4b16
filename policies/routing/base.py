"""What policies that learn nothing, and read nothing but the candidates, have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policies.policy import Encoder
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.situation import Situation


class Stateless:
    """A policy without a state. What it likes is said by `propensities` alone; nothing is estimated."""

    encoders: tuple[Encoder, ...] = ()

    def empty(self) -> None:
        """Nothing is learned."""

    def estimate(self, _state: None, situation: Situation) -> Scores:
        """Nothing is known of quality."""
        return unknown(situation)

    def propensities(self, _state: None, situation: Situation, scores: Scores) -> Odds:
        """How likely each candidate is to be drawn."""
        raise NotImplementedError

    def fold(self, _state: None, _observations: Sequence[Observation]) -> None:
        """Nothing is learned."""

    def statistics(self, _state: None) -> dict[str, Any]:
        """There are none."""
        return {}


def argmax(values: Sequence[float]) -> tuple[float, ...]:
    """One-hot at the largest; the first of several."""
    odds = [0.0] * len(values)
    odds[values.index(max(values))] = 1.0
    return tuple(odds)


def unknown(situation: Situation) -> Scores:
    """Nothing is known of quality: every candidate scores 0, within [0, 1]."""
    zeros = (0.0,) * len(situation.candidates)
    return Scores(zeros, zeros, (1.0,) * len(zeros), zeros, estimated=False)


def priced(quality: Sequence[float], situation: Situation) -> tuple[float, ...]:
    """quality - prices.cost * cost - prices.latency * latency, of each candidate."""
    cost, latency = situation.prices.cost, situation.prices.latency
    return tuple([q - cost * each.cost - latency * each.latency for q, each in zip(quality, situation.candidates, strict=True)])


def favourite(scores: Sequence[float], situation: Situation, baseline: str) -> tuple[float, ...]:
    """One-hot at the largest score; of several alike the baseline, else the first."""
    best = max(scores)
    for score, each in zip(scores, situation.candidates, strict=True):
        if score == best and each.plan.name == baseline:
            return tuple(1.0 if other is each else 0.0 for other in situation.candidates)
    return argmax(scores)
