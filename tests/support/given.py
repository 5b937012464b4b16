"""A policy that thinks and draws what it is told, and situations for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.policy import Kit, Policy, RoutingPolicy, decide
from policies.routing.base import argmax
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Situation


@dataclass(frozen=True)
class Seen:
    """How many observations were folded, and their gains."""

    count: int = 0
    total: float = 0.0


@dataclass(frozen=True)
class Named:
    """An encoder that is nothing but its name."""

    name: str
    dim: int = 1
    slow: bool = False

    def encode(self, prompt: Any) -> Any:
        """Never asked."""
        raise NotImplementedError


class Given:
    """quality: by plan name; the score is that, minus what the plan costs, plus `bonus` where it explores. odds: by plan name; None:
    one-hot at the best score. low: by plan name. fails: raised by whatever it is asked."""

    def __init__(
        self,
        quality: Mapping[str, float] | None = None,
        odds: Mapping[str, float] | None = None,
        low: Mapping[str, float] | None = None,
        bonus: Mapping[str, float] | None = None,
        explores: bool = True,
        encoders: Sequence[str] = (),
        fails: Exception | None = None,
        shadow: Mapping[str, str] | None = None,
    ) -> None:
        self.quality, self.odds, self.low, self.bonus = quality or {}, odds, low or {}, bonus or {}
        self.explores, self.fails, self.shadow = explores, fails, dict(shadow or {})
        self.encoders = tuple(Named(name) for name in encoders)

    def empty(self) -> Seen:
        return Seen()

    def estimate(self, _state: Seen, situation: Situation) -> Scores:
        self._fail()
        names = [each.plan.name for each in situation.candidates]
        quality = tuple(self.quality.get(name, 0.0) for name in names)
        low = tuple(self.low.get(name, q) for name, q in zip(names, quality, strict=True))
        bonus = [self.bonus.get(name, 0.0) if situation.explore else 0.0 for name in names]
        costs = [situation.prices.cost * each.cost for each in situation.candidates]
        score = tuple(q + b - c for q, b, c in zip(quality, bonus, costs, strict=True))
        return Scores(quality, low, (1.0,) * len(names), score)

    def propensities(self, _state: Seen, situation: Situation, scores: Scores) -> Odds:
        self._fail()
        odds = argmax(scores.score) if self.odds is None else tuple(self.odds.get(each.plan.name, 0.0) for each in situation.candidates)
        return Odds(odds, explores=self.explores, shadow=self.shadow)

    def fold(self, state: Seen, observations: Sequence[Observation]) -> Seen:
        self._fail()
        return Seen(state.count + sum(each.count for each in observations), state.total + sum(each.gain for each in observations))

    def statistics(self, state: Seen) -> dict[str, Any]:
        return {"count": state.count}

    def _fail(self) -> None:
        if self.fails is not None:
            raise self.fails


def candidates(names: str, costs: Mapping[str, float] | None = None) -> tuple[Candidate, ...]:
    """A candidate for each letter."""
    return tuple(Candidate(Plan(name, f"model-{name}"), index, (costs or {}).get(name, 0.0)) for index, name in enumerate(names))


def kit(policies: Mapping[str, RoutingPolicy[Any]] | None = None, baseline: str = "a") -> Kit:
    """A kit with these policies."""
    encoder: Callable[[str], Named] = Named
    return Kit(encoder, dict(policies or {}).__getitem__, baseline)


def surprise(
    policy: Policy, state: Any, situations: Callable[[int], Situation], expected: Mapping[str, float], draws: int = 20_000
) -> float:
    """Chi-square of the plans that are drawn, against these probabilities. Every decision must say the same of them as is expected."""
    drawn: Counter[str] = Counter()
    for index in range(draws):
        situation = situations(index)
        decision = decide(policy, state, situation, f"d{index}")
        names = [each.plan.name for each in situation.candidates]
        drawn[names[decision.chosen]] += 1
        assert all(abs(p - expected[name]) < 1e-12 for name, p in zip(names, decision.probabilities, strict=True))
        assert decision.propensity == decision.probabilities[decision.chosen]
    assert all(expected[name] > 0 for name in drawn)
    return sum((drawn[name] - draws * p) ** 2 / (draws * p) for name, p in expected.items() if p > 0)
