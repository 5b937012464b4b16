"""Whether a judge looks at the answers or at their places: how often each place was chosen, beside how often chance would have.

    expected(p) = sum over verdicts with at least p answers of 1 / answers       for the order is drawn by lot
    distance    = (1/2) sum_p |chosen(p) - expected(p)| / verdicts               0: no bias; towards 1: always one place of many

Sums, so those of several requests, strategies or processes add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec


class Bias(msgspec.Struct, frozen=True):
    """chosen: how often, by the number of answers shown and by place, from 1 on."""

    chosen: Mapping[tuple[int, int], int] = {}

    @property
    def verdicts(self) -> int:
        """How many there were."""
        return sum(self.chosen.values())

    def places(self) -> dict[int, tuple[int, float]]:
        """By place: how often it was chosen, and how often chance would have."""
        found: dict[int, tuple[int, float]] = {}
        for (shown, place), times in self.chosen.items():
            for each in range(1, shown + 1):
                chosen, expected = found.get(each, (0, 0.0))
                found[each] = (chosen + (times if each == place else 0), expected + times / shown)
        return dict(sorted(found.items()))

    @property
    def distance(self) -> float:
        """See above. Small numbers of verdicts are far from chance by chance."""
        verdicts = self.verdicts
        return 0.5 * math.fsum(abs(chosen - expected) for chosen, expected in self.places().values()) / verdicts if verdicts else 0.0

    def __add__(self, other: Bias) -> Bias:
        both = dict(self.chosen)
        for at, times in other.chosen.items():
            both[at] = both.get(at, 0) + times
        return Bias(both)


def bias(verdicts: Iterable[tuple[int, int]]) -> Bias:
    """Of verdicts: how many answers were shown, and the place that was chosen. Raises ValueError for a place that was not shown."""
    chosen: dict[tuple[int, int], int] = {}
    for shown, place in verdicts:
        if not 1 <= place <= shown:
            raise ValueError("a place that was not shown")
        chosen[shown, place] = chosen.get((shown, place), 0) + 1
    return Bias(chosen)
