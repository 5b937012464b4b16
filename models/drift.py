"""Notices that a plan is no longer what was learned of it: a change detector per plan.

    e_p <- (1 - rate) e_p + rate (r - predicted)        for each answer of plan p
    alarm: |e_p| > threshold, after `pulls` answers of p since the last alarm

On an alarm only a share `keep` of everything that was learned still counts, of all plans: what changed one (a new version, a new kind of
traffic) is likely to have changed others. With the defaults and noise of variance 0.25, the threshold is 5 standard deviations of e_p, and
a change by 0.4 is noticed after some 50 answers. Unlike the sums of ridge.py this depends on the order in which answers arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MARKS = 8


@dataclass(frozen=True)
class Drift:
    """error: (P,), e_p. pulls: (P,), answers since the last alarm. alarms: (P,), how many each plan has raised. marks: (MARKS,), when the
    last alarms were, oldest first, seconds since 1970: what was decided before a mark counts by `keep`."""

    error: Floats
    pulls: Ints
    alarms: Ints
    marks: Floats


@dataclass(frozen=True)
class Detector:
    """See above."""

    rate: float = 0.02
    threshold: float = 0.25
    pulls: int = 50
    keep: float = 0.005

    def empty(self, plans: int) -> Drift:
        """Nothing was seen."""
        return Drift(np.zeros(plans), np.zeros(plans, np.int64), np.zeros(plans, np.int64), np.full(MARKS, -math.inf))

    def watched(self, drift: Drift, plans: Sequence[int], errors: Sequence[float]) -> tuple[Drift, int | None]:
        """Sees answers in their order, up to the first that raises an alarm: its position. errors: r - predicted."""
        error, pulls = drift.error.copy(), drift.pulls.copy()
        for position, (plan, miss) in enumerate(zip(plans, errors, strict=True)):
            error[plan] += self.rate * (miss - error[plan])
            pulls[plan] += 1
            if pulls[plan] >= self.pulls and abs(error[plan]) > self.threshold:
                return Drift(error, pulls, drift.alarms, drift.marks), position
        return Drift(error, pulls, drift.alarms, drift.marks), None

    def marked(self, drift: Drift, plan: int, at: float) -> Drift:
        """After this plan's alarm: everything decided before `at` counts by `keep`, and watching begins anew."""
        alarms = drift.alarms.copy()
        alarms[plan] += 1
        return Drift(np.zeros_like(drift.error), np.zeros_like(drift.pulls), alarms, np.append(drift.marks[1:], at))

    def shares(self, drift: Drift, at: Floats) -> Floats:
        """(n,): how much of what was decided at these times still counts."""
        shares: Floats = self.keep ** (drift.marks[None, :] > at[:, None]).sum(1, dtype=np.float64)
        return shares
