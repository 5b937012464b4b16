"""What was decided, and why."""

from __future__ import annotations

import msgspec


class Scores(msgspec.Struct, frozen=True, gc=False):
    """What a policy thinks of each candidate, in their order.

    quality: expected, 0 to 1; low, high: an interval of the policy's own kind around it. score: what is compared: quality, with the
    policy's bonus for what it does not know, minus what the plan costs. spread: standard deviation of the score where it is random, else 0.
    estimated: False: the policy knows nothing of quality, and the numbers mean nothing.
    """

    quality: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    score: tuple[float, ...]
    spread: tuple[float, ...] = ()
    estimated: bool = True


class Odds(msgspec.Struct, frozen=True, gc=False):
    """Probabilities of the candidates, before the floor. drawn: what is drawn from. marginal: what the log says: over all that was random,
    the part too that is fixed for a session or a tenant; None: it is the same. explores: whether the floor is mixed in. shadow: what
    shadowed policies would have drawn, plans by the policies' names."""

    drawn: tuple[float, ...]
    marginal: tuple[float, ...] | None = None
    explores: bool = True
    shadow: dict[str, str] = {}


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Which candidate was drawn (an index into the candidates), and with which probability.

    propensity: of the chosen one. probabilities: of all, marginal, the floor in them. explored: it was not one that the policy likes best.
    shadow: see Odds.
    """

    chosen: int
    propensity: float
    probabilities: tuple[float, ...]
    explored: bool
    scores: Scores | None = None
    shadow: dict[str, str] = {}
