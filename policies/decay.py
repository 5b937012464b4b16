"""Forward decay in wall time (Cormode et al. 2009): sums that forget, and that replicas may add in any order.

    weight of an observation of time t = 2^((t - L) / H)          H: half-life, L: landmark

The landmark is the start of the half-life in which the newest observation lies, counted from 1970. It moves by whole half-lives, so sums
are halved exactly, and when it moved makes no difference beyond rounding.
"""

from __future__ import annotations

import math

MOST_HALVINGS = 2_000
"""After these nothing is left of a float."""


def moved(landmark: float, newest: float, half_life_s: float) -> tuple[float, int]:
    """The landmark that goes with the newest observation, and the power of 2 (at most 0) by which the sums are scaled to it."""
    at = max(landmark, math.floor(newest / half_life_s) * half_life_s)
    return at, max(-MOST_HALVINGS, round((landmark - at) / half_life_s))


def weight(at: float, landmark: float, half_life_s: float) -> float:
    """2^((at - landmark) / half-life). `at` is at most one half-life after the landmark."""
    return float(2.0 ** ((at - landmark) / half_life_s))


def problems(half_life_s: float) -> list[str]:
    """What of a half-life cannot work."""
    return [] if 1.0 <= half_life_s < math.inf else ["`half_life_s` must be at least 1 second, and finite"]
