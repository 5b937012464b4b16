"""The vote of answers that are the same: self-consistency (Wang et al. 2023, arXiv 2203.11171), with weights or without.

    winner = argmax over keys k of  sum of w_i over the candidates i whose key is k

Of keys with the same weight, the one with more votes leads; of those, the one whose first vote comes first in the sequence given. So the
order matters for ties alone. A candidate without an answer (None) abstains: it is counted, and weighs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from policies.answers.equivalence import Key


class Group(NamedTuple):
    """Candidates that say the same. members: their places in the sequence, rising. weight: the sum of theirs."""

    key: Key
    members: tuple[int, ...]
    weight: float

    @property
    def votes(self) -> int:
        """How many they are."""
        return len(self.members)


class Tally(NamedTuple):
    """groups: the leader first. abstained: places of the candidates without an answer. chosen: place of the candidate to deliver; None:
    nobody has an answer."""

    groups: tuple[Group, ...]
    abstained: tuple[int, ...]
    chosen: int | None

    @property
    def leader(self) -> Group | None:
        """The group that wins."""
        return self.groups[0] if self.groups else None

    @property
    def runner_up(self) -> Group | None:
        """The group that comes next."""
        return self.groups[1] if len(self.groups) > 1 else None

    @property
    def v1(self) -> int:
        """Votes of the leader."""
        return self.groups[0].votes if self.groups else 0

    @property
    def v2(self) -> int:
        """Votes of the runner-up."""
        return self.groups[1].votes if len(self.groups) > 1 else 0

    @property
    def total(self) -> int:
        """Votes in all, without abstentions."""
        return sum(group.votes for group in self.groups)

    @property
    def share(self) -> float | None:
        """The leader's share of the weight, 0 to 1; None: nobody has an answer, or no answer weighs anything."""
        weight = math.fsum(group.weight for group in self.groups)
        return self.groups[0].weight / weight if weight > 0 else None

    @property
    def split(self) -> bool:
        """There are several answers."""
        return len(self.groups) > 1


def tally(keys: Sequence[Key | None], weights: Sequence[float] | None = None, confidences: Sequence[float | None] | None = None) -> Tally:
    """The vote. keys: of each candidate, None where it abstains (equivalence.joined has been applied to them, if numbers may be in doubt).
    weights: of each, at least 0; None: 1 each. confidences: whatever is comparable between candidates; then the most confident of the
    leaders is chosen, and only for equals the earliest; one without confidence comes after those that have one. Raises ValueError if
    lengths differ, or for a weight that is negative or no number."""
    for given in (weights, confidences):
        if given is not None and len(given) != len(keys):
            raise ValueError("one for each key")
    if weights is not None and not all(0.0 <= weight < math.inf for weight in weights):
        raise ValueError("weights are numbers from 0 on")
    members: dict[Key, list[int]] = {}
    for place, each in enumerate(keys):
        if each is not None:
            members.setdefault(each, []).append(place)
    groups = [
        Group(each, tuple(places), float(len(places)) if weights is None else math.fsum(weights[place] for place in places))
        for each, places in members.items()
    ]
    groups.sort(key=lambda group: (-group.weight, -group.votes, group.members[0]))
    chosen = _best(groups[0].members, confidences) if groups else None
    return Tally(tuple(groups), tuple(place for place, each in enumerate(keys) if each is None), chosen)


def _best(places: Sequence[int], confidences: Sequence[float | None] | None) -> int:
    if confidences is None:
        return places[0]

    def confidence(place: int) -> float:
        value = confidences[place]
        return -math.inf if value is None or math.isnan(value) else value

    return max(places, key=confidence)  # the first of equals
