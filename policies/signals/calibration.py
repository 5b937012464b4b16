"""What a source's word is worth: a line from its values to the probability of success, fitted on decisions that were judged twice.

    p(v) = (1 - v) a + v b
    (a, b) = argmin  sum_i (y_i - p(v_i))^2 + k ((a - a0)^2 + (b - b0)^2)

v_i: what the source said; y_i: what callers said of the same decision, the truth here; (a0, b0): what is believed beforehand, as strongly
as k pairs. For values of 0 and 1 alone, a and b are the means of a Beta posterior: (k a0 + successes) / (k + n). A source whose line would
fall tells nothing: then a = b, the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

LEAST_PAIRS: Final = 50
_BELIEVED: Final = 5.0


class Calibration(NamedTuple):
    """A straight line: the probability of success where a source says 0, and where it says 1."""

    at_0: float = 0.0
    at_1: float = 1.0

    def __call__(self, value: float) -> float:
        """Within [0, 1]."""
        return min(1.0, max(0.0, self.at_0 + value * (self.at_1 - self.at_0)))


AS_IT_IS: Final = Calibration()
BELIEVED: Final[Mapping[str, Calibration]] = MappingProxyType(
    {
        "schema": Calibration(0.05, 0.7),
        "tools": Calibration(0.05, 0.7),
        "truncation": Calibration(0.1, 0.7),
        "refusal": Calibration(0.2, 0.7),
    }
)
"""Until enough is known. That an answer has the right form says little of what is in it, and the same of each of them; that it has not,
much."""

Pair = tuple[float, float]
"""What a source said, and what callers said."""


def calibrated(pairs: Iterable[Pair], before: Calibration = AS_IT_IS, least: int = LEAST_PAIRS) -> Calibration:
    """The line, from at least so many pairs; else as it was believed to be before."""
    known = list(pairs)
    if len(known) < least:
        return before
    s00, s01, s11 = _BELIEVED, 0.0, _BELIEVED
    r0, r1 = _BELIEVED * before.at_0, _BELIEVED * before.at_1
    for value, truth in known:
        rest = 1.0 - value
        s00 += rest * rest
        s01 += rest * value
        s11 += value * value
        r0 += rest * truth
        r1 += value * truth
    scale = s00 * s11 - s01 * s01
    at_0, at_1 = (s11 * r0 - s01 * r1) / scale, (s00 * r1 - s01 * r0) / scale
    if at_1 < at_0:
        at_0 = at_1 = (r0 + r1) / (s00 + 2 * s01 + s11)
    return Calibration(min(1.0, max(0.0, at_0)), min(1.0, max(0.0, at_1)))


def calibrations(pairs: Mapping[str, Sequence[Pair]], before: Mapping[str, Calibration]) -> dict[str, Calibration]:
    """Of each source that is known by either. before: what is believed of some of them; of others, that they are as they are."""
    return {source: calibrated(pairs.get(source, ()), before.get(source, AS_IT_IS)) for source in (*before, *pairs)}
