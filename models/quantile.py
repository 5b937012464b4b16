"""A quantile of what was lately measured: seconds that calls took, of one plan.

Counts by bins that grow by a factor of 2^(1/8), 9 %, between 1 ms and 4,096 s; what lies outside is in the first or the last. A value
counts half after HALF_LIFE more (forward decay: the newest weighs more, nothing is touched again), so a plan that has become quick is soon
known to be. Within a bin values are taken to be spread evenly, as logarithms: the answer is within 9 % of one that was measured.
"""

from __future__ import annotations

import math
from typing import Final

HALF_LIFE: Final = 200.0
"""Values after which one counts half."""

_GROWTH: Final = 2.0 ** (1.0 / HALF_LIFE)
_LARGE: Final = 1e12
_PER_OCTAVE: Final = 8
_FIRST: Final = -10 * _PER_OCTAVE  # 2^-10 s is 1 ms
_BINS: Final = 22 * _PER_OCTAVE
_LEAST: Final = 2.0**-10


class Quantile:
    """share: which one; 0.95: 5 % are above it. least: values before which it is not known. count: values so far."""

    __slots__ = ("_bins", "_found", "_least", "_share", "_top", "_total", "_weight", "count")

    def __init__(self, share: float, least: int = 20) -> None:
        if not 0.0 < share < 1.0:
            raise ValueError(f"a quantile lies between 0 and 1, not at {share}")
        self.count = 0
        self._share = share
        self._least = least
        self._bins = [0.0] * _BINS
        self._total = 0.0
        self._weight = 1.0
        self._top = 0
        self._found: float | None = None

    def observe(self, value: float) -> None:
        """Takes a value; one that is below 0 or not finite is left out."""
        if not 0.0 <= value < math.inf:
            return
        number = 0 if value <= _LEAST else min(int(math.log2(value) * _PER_OCTAVE - _FIRST), _BINS - 1)
        weight = self._weight = self._weight * _GROWTH
        if weight > _LARGE:
            self._bins = [each / weight for each in self._bins]
            self._total /= weight
            weight = self._weight = 1.0
        self._bins[number] += weight
        self._total += weight
        self._top = max(self._top, number)
        self.count += 1
        self._found = None

    def value(self) -> float | None:
        """The quantile; None: too few values are known."""
        if self.count < self._least:
            return None
        if self._found is None:
            self._found = self._look()
        return self._found

    def _look(self) -> float:
        above = (1.0 - self._share) * self._total
        number = self._top
        while number > 0 and above >= self._bins[number]:
            above -= self._bins[number]
            number -= 1
        held = self._bins[number]
        down = min(above / held, 1.0) if held else 1.0
        return math.exp2((number + 1.0 - down + _FIRST) / _PER_OCTAVE)
