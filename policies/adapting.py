"""What is known of plans, when plans come or go: those that stay keep their rows, a new one begins with nothing.

A policy may have `adapted(arrays, old plans, new plans) -> arrays`: its state over the old plans (policies.states.arrays), as one over the
new ones, known by their names. It raises ValueError for what it cannot do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from policies.states import Arrays


def by_plan(
    found: Arrays, fills: Mapping[str, float], old: Sequence[str], new: Sequence[str], axis: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays, with the new plans along this axis of those that are named in `fills`: what a new plan has there. Raises ValueError where
    one is missing, or is not of the old plans."""
    taken = [old.index(name) if name in old else len(old) for name in new]
    made = dict(found)
    for name, fill in fills.items():
        array = found.get(name)
        if array is None or array.ndim <= axis or array.shape[axis] != len(old):
            raise ValueError(f"`{name}` is not of these plans")
        pad = [(0, 0)] * array.ndim
        pad[axis] = (0, 1)
        made[name] = np.ascontiguousarray(np.take(np.pad(array, pad, constant_values=fill), taken, axis=axis))
    return made
