"""What wrappers have in common: everything passes through to the policy inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from policies.policy import Encoder, RoutingPolicy, needed
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.situation import Situation

if TYPE_CHECKING:
    from policies.states import Arrays


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

    def adapted(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """Its state over the old plans as one over the new, see policies.adapting. Raises ValueError where the policy inside cannot do
        that."""
        own = {name: array for name, array in found.items() if not name.startswith("inner.")}
        return self._own(own, old, new) | adapted(self.inner, "inner.", found, old, new)

    def _own(self, found: Arrays, _old: Sequence[str], _new: Sequence[str]) -> dict[str, Any]:
        """What is not of the policy inside, over the new plans. Here nothing depends on them."""
        return dict(found)


def adapted(policy: RoutingPolicy[Any], prefix: str, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
    """The arrays of a policy's state, those of this prefix, over other plans. Raises ValueError where it cannot do that."""
    own = {name.removeprefix(prefix): array for name, array in found.items() if name.startswith(prefix)}
    if not own:
        return {}
    change = getattr(policy, "adapted", None)
    if change is None:
        raise ValueError(f"`{type(policy).__name__}` cannot take over what it knows of other plans")
    return {prefix + name: array for name, array in change(own, old, new).items()}


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


def stays(odds: Odds, situation: Situation) -> bool:
    """Whether a policy that does not explore keeps the session with its plan."""
    if odds.explores or situation.standing is None:
        return False
    current = position(situation, situation.standing.plan)
    return current is not None and odds.drawn[current] >= sum(odds.drawn)


def overall(odds: Odds) -> tuple[float, ...]:
    """The probabilities over all that is random."""
    return normalised(odds.drawn if odds.marginal is None else odds.marginal)


def spread(odds: Odds, scores: Scores, over: Sequence[bool]) -> tuple[float, ...]:
    """How the odds divide what goes to these candidates, at least one. Where they give them nothing: to the best score; where there are
    sides, which score differently, evenly, so that the marginal odds stay exact."""
    shares = [p if each else 0.0 for p, each in zip(overall(odds), over, strict=True)]
    if sum(shares) > 0:
        return normalised(shares)
    if odds.marginal is not None:
        return normalised([float(each) for each in over])
    return only(max((index for index, each in enumerate(over) if each), key=scores.score.__getitem__), len(over))


def handed(odds: Odds, kept: Sequence[float], to: Sequence[float]) -> Odds:
    """The same odds where each candidate keeps a part of its probability, and the others get what is left, by `to`, which sums to 1. The
    map is linear, so it is exact for the marginal odds, too, as long as `kept` and `to` are the same on all sides."""

    def mapped(probabilities: Sequence[float]) -> tuple[float, ...]:
        held = [p * part for p, part in zip(normalised(probabilities), kept, strict=True)]
        free = max(0.0, 1.0 - sum(held))
        return tuple(p + free * share for p, share in zip(held, to, strict=True))

    marginal = None if odds.marginal is None else mapped(odds.marginal)
    return msgspec.structs.replace(odds, drawn=mapped(odds.drawn), marginal=marginal)
