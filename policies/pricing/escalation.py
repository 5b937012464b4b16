r"""When a dearer model is worth asking, and when a slow check is worth making before that.

    intervene    iff  p_accept >= tau = C_FA / (C_FA + p_need C_FN)              PRISM (2026, arXiv 2602.01532)
                 that is, iff  p_accept p_need C_FN >= (1 - p_accept) C_FA

    escalate     iff  p_need p_strong v >= c
                 need: the chance that the cheap answer is wrong; p_strong: that the strong one is right then; v: what a right answer is
                 worth; c: what escalating costs

The second is the first with p_accept := p_need p_strong, the chance that escalating is of use, C_FA := c and C_FN := v - c, for what is
missed is what a right answer is worth less what it would have cost. A price that is paid whatever comes of it must not count only where
the escalation was in vain.

A slow check moves the estimate m of a chance to one of N(m, s^2). Acting on a chance p is worth K (p - tau), K the stake, so the check is
worth (Raiffa and Schlaifer 1961, unit normal loss)

    VOI = K s [phi(z) - |z| Phi(-|z|)],  z = (m - tau) / s

which is more than its price c iff |m - tau| < s z*, where phi(z*) - z* Phi(-z*) = c / (K s): PRISM's margin. It never is where
c >= K s phi(0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_PHI_0: Final = 1.0 / math.sqrt(2.0 * math.pi)
_LEAST: Final = 1e-12
_STEPS: Final = 40


def prism(false_alarm: float, missed: float, need: float = 1.0) -> float:
    """tau: the least p_accept with which to intervene. false_alarm, missed: C_FA and C_FN, at least 0, in one unit; need: p_need. 1 where
    nothing can be missed, which no chance below 1 reaches."""
    stake = false_alarm + need * missed
    return false_alarm / stake if stake > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class Escalation:
    """The rule. value: of a right answer, above 0; price: of escalating, in its unit, at least 0; strong: the chance that the strong model
    is right where the cheap one is wrong."""

    value: float
    price: float
    strong: float

    @property
    def stake(self) -> float:
        """K: what a certainty more that the cheap answer is wrong makes escalating worth."""
        return self.strong * self.value

    @property
    def least(self) -> float:
        """The chance that the cheap answer is right, from which on it is served: it is escalated below. 0: never, at most 1: a certain
        answer is never escalated."""
        if self.price >= self.value or self.stake <= 0.0:
            return 0.0
        return max(0.0, 1.0 - prism(self.price, self.value - self.price) / self.strong)

    def worth(self, right: float) -> float:
        """What escalating brings, net, when the cheap answer is right with that chance."""
        return (1.0 - right) * self.stake - self.price


def z_star(ratio: float) -> float | None:
    """z*, at least 0. ratio: c / (K s). None: no doubt is great enough. Infinite where the check costs nothing.

    By Newton's steps on the logarithm of phi(z) - z Phi(-z), which is concave: from the second on they come from above, never past it."""
    if not ratio < _PHI_0:
        return None
    if ratio <= 0.0:
        return math.inf
    ratio = max(ratio, _LEAST)
    z = 0.0
    for _ in range(_STEPS):
        loss = unit_normal_loss(z)
        step = math.log(loss / ratio) * loss / _beyond(z)
        z += step
        if abs(step) < 1e-12 * (1.0 + z):
            break
    return max(0.0, z)


def unit_normal_loss(z: float) -> float:
    """E[(Z - z)+] of a standard normal Z: phi(z) - z Phi(-z)."""
    return _PHI_0 * math.exp(-0.5 * z * z) - z * _beyond(z)


def _beyond(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2.0))


@dataclass(frozen=True, slots=True)
class SlowCheck:
    """A check that may be made or not. price: of it; spread: s, how far it moves the estimate, as a standard deviation (of the slow
    estimate less the fast one, on answers of one's own). In the unit of the stake, at least 0."""

    price: float
    spread: float

    def worth(self, estimate: float, threshold: float, stake: float) -> float:
        """VOI, without the price."""
        if self.spread <= 0.0:
            return 0.0
        return stake * self.spread * unit_normal_loss(abs(estimate - threshold) / self.spread)

    def margin(self, stake: float) -> float | None:
        """delta*: the distance from the threshold within which it is worth its price; None: nowhere."""
        if stake <= 0.0 or self.spread <= 0.0:
            return None
        z = z_star(self.price / (stake * self.spread))
        return None if z is None else self.spread * z

    def pays(self, estimate: float, threshold: float, stake: float) -> bool:
        """Whether to make it."""
        margin = self.margin(stake)
        return margin is not None and abs(estimate - threshold) <= margin
