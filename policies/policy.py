"""The seam of routing: what a policy is, and how one decides.

estimate       what each candidate would bring          state, situation -> Scores
propensities   how likely each is to be drawn           state, situation, scores -> Odds
fold           what observations teach                  state, observations -> state

A policy is an immutable value over the plans of one virtual model; its state is another, which flows. Both sides of a replay call the same
functions, so a decision can be made again bit for bit from its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from policies.draw import draw
from policies.values.decision import Decision, Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.prompt import Prompt
from policies.values.situation import Situation

if TYPE_CHECKING:
    from policies.values.situation import Vector

S = TypeVar("S")


class Encoder(Protocol):
    """Makes features of a prompt: the same ones for the same prompt, wherever and whenever it is asked.

    name: with its version, such as `shape-1`; a block of features is known by it. dim: numbers in a block. slow: it takes more than half a
    millisecond, so it is asked off the loop, within a time box.
    """

    @property
    def name(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def slow(self) -> bool: ...
    def encode(self, prompt: Prompt) -> Vector:
        """float32, (dim,)."""
        ...


class RoutingPolicy(Protocol[S]):
    """One algorithm over the plans of one virtual model; pure.

    S: a frozen dataclass of numpy arrays, numbers and further states, or None where nothing is learned.
    """

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Whose blocks it reads."""
        ...

    def empty(self) -> S:
        """What is known before anything is."""
        ...

    def estimate(self, state: S, situation: Situation) -> Scores:
        """What each candidate would bring. It does not explore where `situation.explore` is false."""
        ...

    def propensities(self, state: S, situation: Situation, scores: Scores) -> Odds:
        """How likely each candidate is to be drawn, before the floor."""
        ...

    def fold(self, state: S, observations: Sequence[Observation]) -> S:
        """What is known after these, too. Sums, so the order does not matter beyond rounding."""
        ...

    def statistics(self, state: S) -> dict[str, Any]:
        """What is known, for people: numbers by plan name."""
        ...


class Kit(msgspec.Struct, frozen=True):
    """What the world gives to a policy that is built.

    encoder: by name without version (`shape`, `static`); raises ValueError for one that cannot be had. policy: another configured policy
    over the same plans, with its wrappers. baseline: name of the plan that is the guarantee.
    """

    encoder: Callable[[str], Encoder]
    policy: Callable[[str], RoutingPolicy[Any]]
    baseline: str


class Policy(msgspec.Struct, frozen=True):
    """A configured policy, ready to decide. floor: total share of draws that is spread evenly over the candidates. seed: of the draws.
    start: what the algorithm knows before anything is, its `empty()`."""

    name: str
    algorithm: RoutingPolicy[Any]
    floor: float
    seed: int
    start: Any = None


def decide(policy: Policy, state: Any, situation: Situation, decision_id: str) -> Decision:
    """Which candidate runs the request, drawn with exactly the probability that is returned."""
    scores = policy.algorithm.estimate(state, situation)
    odds = policy.algorithm.propensities(state, situation, scores)
    floor = policy.floor if situation.explore and odds.explores else 0.0
    drawn = draw(odds.drawn, floor, decision_id, policy.seed, odds.marginal)
    return Decision(drawn.chosen, drawn.propensity, drawn.probabilities, drawn.explored, scores, odds.shadow)


def needed(algorithm: RoutingPolicy[Any]) -> tuple[Encoder, ...]:
    """Whose blocks it cannot decide without: all that it reads, but those that only a policy reads which merely watches."""
    found: tuple[Encoder, ...] | None = getattr(algorithm, "needed", None)
    return algorithm.encoders if found is None else found


Blocks = Mapping[str, "Vector"]


def plan_names(plans: Sequence[Plan]) -> dict[str, int]:
    """Index of each plan by its name."""
    return {plan.name: index for index, plan in enumerate(plans)}
