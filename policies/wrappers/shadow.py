"""What another policy would have done, on the same requests, without any influence on them.

d.shadow[name] = argmax_a p_shadow(a)            the plan that it would most likely have drawn; of several, the first

It has a state of its own, folded on the same observations, so it learns from what the deployed policy chose. It draws nothing. Where it
fails for numbers or features that it cannot work with (ArithmeticError, ValueError, LookupError), the request goes on, and the empty name
is logged in its stead, so that failures are seen and can be counted; where it cannot fold, it keeps what it knew, and `failures` counts
that. Any other error is a mistake in its code and is not hidden. Features that only it reads are not waited for beyond the time box: they
may be missing in a decision, from which it then learns nothing, while the policy that serves does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from policies.policy import Encoder, Kit, RoutingPolicy
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation
from policies.wrappers.base import Wrapper, adapted, union

if TYPE_CHECKING:
    from policies.states import Arrays

FAILURES = (ArithmeticError, ValueError, LookupError)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """policy: the name of the configured policy that is watched."""

    policy: str


def problems(_params: Params, _plans: Sequence[str]) -> list[str]:
    """There are none that the plans' names could tell; a policy that is not there is found when it is built."""
    return []


def build(params: Params, inner: RoutingPolicy[Any], _plans: Sequence[Plan], kit: Kit) -> Shadow:
    """The policy, watched by another."""
    return Shadow(inner, params.policy, kit.policy(params.policy))


@dataclass(frozen=True)
class State:
    """inner: of the policy that serves. other: of the one that only watches. failures: batches that it could not fold."""

    inner: Any
    other: Any
    failures: int = 0


class Shadow(Wrapper):
    """inner: the policy that serves. name, other: the one that only watches."""

    def __init__(self, inner: RoutingPolicy[Any], name: str, other: RoutingPolicy[Any]) -> None:
        super().__init__(inner)
        self._name = name
        self._other = other

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Those of both."""
        return union(self.inner, self._other)

    def empty(self) -> State:
        """What is known before anything is."""
        return State(self.inner.empty(), self._other.empty())

    def propensities(self, state: State, situation: Situation, scores: Scores) -> Odds:
        """Those of the policy that serves, and what the other would have done."""
        odds = self.inner.propensities(state.inner, situation, scores)
        return msgspec.structs.replace(odds, shadow={**odds.shadow, self._name: self._choice(state.other, situation)})

    def _choice(self, state: Any, situation: Situation) -> str:
        try:
            drawn = self._other.propensities(state, situation, self._other.estimate(state, situation)).drawn
            return situation.candidates[max(range(len(drawn)), key=drawn.__getitem__)].plan.name
        except FAILURES:
            return ""

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """Both learn; the one that watches, where its features are there."""
        inner = self.inner.fold(state.inner, observations)
        names = [each.name for each in self._other.encoders]
        readable = [each for each in observations if all(name in each.blocks for name in names)]
        try:
            return State(inner, self._other.fold(state.other, readable), state.failures)
        except FAILURES:
            return State(inner, state.other, state.failures + 1)

    def statistics(self, state: State) -> dict[str, Any]:
        """Of both, the watching one under its name."""
        return {
            "inner": self.inner.statistics(state.inner),
            "shadow": {"policy": self._name, "failures": state.failures, **self._other.statistics(state.other)},
        }

    def _own(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """The other policy's state is over the plans, too."""
        own = {name: array for name, array in found.items() if not name.startswith("other.")}
        return own | adapted(self._other, "other.", found, old, new)
