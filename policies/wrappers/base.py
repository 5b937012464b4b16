"""What wrappers have in common: everything passes through to the policy inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from policies.policy import Encoder, RoutingPolicy, needed
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.situation import Situation


@dataclass(frozen=True)
class Held:
    """The state of a wrapper that has none of its own. inner: of the policy inside."""

    inner: Any


class Wrapper:
    """inner: the policy inside. A wrapper's state is a frozen dataclass with a field `inner`; here it is all that there is."""

    def __init__(self, inner: RoutingPolicy[Any]) -> None:
        self.inner = inner

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Those of the policy inside."""
        return self.inner.encoders

    @property
    def needed(self) -> tuple[Encoder, ...]:
        """Whose blocks it cannot decide without, see policies.policy.needed."""
        return needed(self.inner)

    def empty(self) -> Any:
        """What is known before anything is."""
        return Held(self.inner.empty())

    def estimate(self, state: Any, situation: Situation) -> Scores:
        """What the policy inside thinks."""
        return self.inner.estimate(state.inner, situation)

    def propensities(self, state: Any, situation: Situation, scores: Scores) -> Odds:
        """What the policy inside would draw from."""
        return self.inner.propensities(state.inner, situation, scores)

    def fold(self, state: Any, observations: Sequence[Observation]) -> Any:
        """The policy inside learns."""
        return replace(state, inner=self.inner.fold(state.inner, observations))

    def statistics(self, state: Any) -> dict[str, Any]:
        """Those of the policy inside, under `inner`."""
        return {"inner": self.inner.statistics(state.inner)}


def union(*policies: RoutingPolicy[Any]) -> tuple[Encoder, ...]:
    """The encoders of all, each name once, in order."""
    return distinct(*(policy.encoders for policy in policies))


def distinct(*encoders: Sequence[Encoder]) -> tuple[Encoder, ...]:
    """Each name once, in order."""
    found: dict[str, Encoder] = {}
    for each in encoders:
        for encoder in each:
            found.setdefault(encoder.name, encoder)
    return tuple(found.values())


def quiet(situation: Situation) -> Situation:
    """The same request, not to be explored on."""
    return msgspec.structs.replace(situation, explore=False) if situation.explore else situation


def position(situation: Situation, plan: str) -> int | None:
    """Where a plan stands among the candidates; None: it is not one."""
    for index, each in enumerate(situation.candidates):
        if each.plan.name == plan:
            return index
    return None


def only(index: int, size: int) -> tuple[float, ...]:
    """One-hot."""
    return tuple(1.0 if each == index else 0.0 for each in range(size))


def normalised(weights: Sequence[float]) -> tuple[float, ...]:
    """The same proportions, summing to 1."""
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def mixed(first: Sequence[float], second: Sequence[float], share: float) -> tuple[float, ...]:
    """(1 - share) * first + share * second, both probabilities."""
    return tuple((1.0 - share) * p + share * q for p, q in zip(first, second, strict=True))
