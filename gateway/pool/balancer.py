"""Which replica serves a call.

    1. those where one more call keeps the load under the ceiling; there always is one
    2. among them the one that affinity asks for
    3. else power of two choices (Mitzenmacher 2001): of two drawn in proportion to weight, the first, unless the second has less to do

The ceiling is bounded-load hashing's (Mirrokni, Thorup, Zadimoghaddam 2018), with c = 1.25:

    in_flight(r) + 1 <= ceil(c * (total + 1) * weight(r) / total weight)

The second has less to do if with this call it would have no more per weight than the first has without it,

    (load(s) + 1) / weight(s) <= load(f) / weight(f)

where load is our own calls in flight; if that tells neither apart, the engine's queue as last scraped; then the calls given of late. So an
idle pool shares by weight and leaves nobody out, and among equal weights a busy one chooses as "the shorter of two queues" does. Own
counts come first because they are exact and current; an engine's metrics are old, and vLLM counts sequences, not requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, Protocol, TypeVar

CEILING: Final = 1.25
# The calls per replica that "of late" looks back on.
_WINDOW: Final = 64


class Replica(Protocol):
    """What the choice looks at."""

    @property
    def name(self) -> str:
        """Unique in its pool."""
        ...

    @property
    def weight(self) -> float:
        """Share of the load, relative to the others'; above 0."""
        ...

    @property
    def in_flight(self) -> int:
        """Our own calls there that have not ended."""
        ...

    @property
    def queued(self) -> float:
        """Sequences that wait in the engine itself, as last scraped and aged; 0 when unknown."""
        ...


R = TypeVar("R", bound=Replica)


def under_ceiling(replicas: Sequence[R], ceiling: float = CEILING) -> list[R]:
    """Those that may take one more call. Never empty if `replicas` is not and `ceiling` >= 1."""
    per_weight = ceiling * (sum(each.in_flight for each in replicas) + 1) / sum(each.weight for each in replicas)
    # What lies above a whole number by a rounding error is that number.
    return [each for each in replicas if each.in_flight < math.ceil(per_weight * each.weight - 1e-9)]


class Balancer:
    """Chooses among the replicas of one model. random: where its draws come from. ceiling: see above; 1 or more."""

    def __init__(self, random: Random, *, ceiling: float = CEILING) -> None:
        self._random = random
        self._ceiling = ceiling
        self._given: dict[str, float] = {}
        self._calls = 0

    def choose(self, replicas: Sequence[R], preferred: Iterable[str] = ()) -> R:
        """One of the replicas (at least one), all of which may serve. The caller then counts the call as in flight.

        preferred: names that affinity asks for, the dearest first; names of others are passed over. Read no further than needed.
        """
        if len(replicas) == 1:
            return replicas[0]
        open_ = under_ceiling(replicas, self._ceiling)
        self._meet(replicas)
        chosen = _preferred(open_, preferred)
        if chosen is None:
            chosen = open_[0] if len(open_) == 1 else self._less_to_do(*self._two(open_))
        self._given[chosen.name] += 1
        self._age(len(replicas))
        return chosen

    def _two(self, replicas: Sequence[R]) -> tuple[R, R]:
        """Two different replicas, each drawn in proportion to its weight among those left."""
        weights = [each.weight for each in replicas]
        first = self._random.choices(range(len(replicas)), weights)[0]
        if len(replicas) == 2:
            return replicas[first], replicas[1 - first]
        weights[first] = 0.0
        return replicas[first], self._random.choices(replicas, weights)[0]

    def _less_to_do(self, first: R, second: R) -> R:
        given = self._given
        for one, other in (
            (first.in_flight, second.in_flight),
            (first.queued, second.queued),
            (given[first.name], given[second.name]),
        ):
            if (other + 1) * first.weight <= one * second.weight:
                return second
            if (one + 1) * second.weight <= other * first.weight:
                return first
        return first

    def _meet(self, replicas: Sequence[R]) -> None:
        """One that is new counts as given what the least given has: it need not catch up with what came before it."""
        given = self._given
        strangers = [each for each in replicas if each.name not in given]
        if strangers:
            least = min((given[each.name] / each.weight for each in replicas if each.name in given), default=0.0)
            given.update((each.name, least * each.weight) for each in strangers)

    def _age(self, replicas: int) -> None:
        self._calls += 1
        if self._calls >= _WINDOW * replicas:
            self._calls //= 2
            # Who has left is forgotten in the end.
            self._given = {name: count / 2 for name, count in self._given.items() if count > 1e-3}


def _preferred(replicas: Sequence[R], names: Iterable[str]) -> R | None:
    for name in names:
        for replica in replicas:
            if replica.name == name:
                return replica
    return None
