"""Percentiles and fairness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of sorted values: the least that at least this share of them does not exceed. None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def jain(values: Sequence[float]) -> float | None:
    """Jain's fairness index (Jain, Chiu, Hawe 1984): (sum x)^2 / (n sum x^2), 1 when all are equal, 1/n when one has all."""
    squares = sum(value * value for value in values)
    return None if squares == 0 else sum(values) ** 2 / (len(values) * squares)


def fair_shares(demand: Mapping[str, float], weight: Mapping[str, float], total: float) -> dict[str, float]:
    """Weighted max-min fairness: `total` shared by weight, nobody above its demand, what it leaves shared among the others."""
    shares = dict.fromkeys(demand, 0.0)
    hungry = {name for name, wanted in demand.items() if wanted > 0}
    left = min(total, sum(demand.values()))
    while hungry and left > 1e-9:
        unit = min(left / sum(weight[name] for name in hungry), min((demand[name] - shares[name]) / weight[name] for name in hungry))
        for name in hungry:
            shares[name] += unit * weight[name]
        left -= unit * sum(weight[name] for name in hungry)
        hungry = {name for name in hungry if demand[name] - shares[name] > 1e-9}
    return shares
