"""Which of several independent normal quantities is the largest, and how probably: what Thompson sampling draws from, without sampling.

    P(a) = integral of prod_{b != a} F_b(t) dF_a(t) = integral of F(t) d log F_a(t),   F = prod_b F_b,   F_b: that of N(mean_b, sd_b^2)

On the union of a grid for each quantity (so spreads may differ by any factor), F and log F_a are parabolas between a grid point, the middle
and the next point (Simpson's rule, for a Stieltjes integral): error below 1e-3, in general below 1e-4. Spreads of zero are jumps; ties are
split evenly. The result sums to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Of each quantity's own grid, in standard deviations. Beyond the last there are 3 of 100,000.
NODES: Floats = np.array([-4.0, -2.6, -1.5, -0.5, 0.5, 1.5, 2.6, 4.0])
# So narrow that a spread below cannot be told from none.
NARROWEST = 1e-9

# log of the standard normal distribution function on a grid, of which the nearest entry is taken; beyond the ends it is constant.
_STEPS = 512
_LOW, _HIGH = -10, 8
_LOG: Floats = np.array([math.log(0.5 * math.erfc(-z / _STEPS / math.sqrt(2.0))) for z in range(_LOW * _STEPS, _HIGH * _STEPS + 1)])


def best(means: Sequence[float], sds: Sequence[float]) -> tuple[float, ...]:
    """P(a) of each. means, sds: (n,), finite, sds >= 0."""
    if len(means) == 1:
        return (1.0,)
    m, s = np.array(means), np.maximum(np.array(sds), NARROWEST)
    ends = (m[:, None] + s[:, None] * NODES).ravel()
    ends.sort()
    # Below, some quantity is all but certainly larger.
    ends = ends[ends.searchsorted((m + NODES[0] * s).max()) :]
    grid = np.empty(2 * len(ends) - 1)
    grid[::2] = ends
    grid[1::2] = 0.5 * (ends[1:] + ends[:-1])
    rate = _STEPS / s
    place = grid * rate[:, None]
    place -= (m * rate)[:, None] + (_LOW * _STEPS - 0.5)
    np.clip(place, 0.0, len(_LOG) - 1, out=place)
    logs = _LOG.take(place.astype(np.int32))
    product = np.exp(logs.sum(0))
    first, middle, last = product[:-2:2], product[1::2], product[2::2]
    # The integral of F dL over an interval, both parabolas, is linear in L's three values; these are their weights.
    weights = np.zeros(len(grid))
    weights[1::2] = (first - last) * (2.0 / 3.0)
    weights[:-2:2] += last / 6.0 - first / 2.0 - middle * (2.0 / 3.0)
    weights[2::2] += middle * (2.0 / 3.0) + last / 2.0 - first / 6.0
    mass = np.maximum(logs @ weights, 0.0)
    found: list[float] = (mass / mass.sum()).tolist()
    return tuple(found)
