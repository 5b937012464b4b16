"""Small linear fits on line: y = t0 + t1 x1 (+ t2 x2), least squares that forget, with no coefficient below 0.

    M = sum v_i x_i x_i' / u_i + v P        v_i    weight of observation i: doubles every HALF_LIFE observations (forward decay)
    r = sum v_i x_i y_i / u_i + v P t'      u_i    what was expected or found, whichever is more: noise grows with what is measured
    t = M^-1 r, at least 0                  t', P  the prior, which is never forgotten: a direction in which nothing varies stays at it

A residual counts up to `_CLIP` times the usual one (Huber), relative to u: a call that hung says that one hung, and no more. A shift is no
outlier: when nearly all residuals lie on one side, what was before is forgotten `_HASTE` times as fast.

Where M^-1 r has a negative part, the lowest is 0 and the rest is solved again: not always the constrained optimum, always near it.
Plain Python: 2 x 2 and 3 x 3 need no library. An observation costs about a microsecond.
"""

from __future__ import annotations

from typing import Final

HALF_LIFE: Final = 200.0
"""Observations after which one counts half."""

_GROWTH: Final = 2.0 ** (1.0 / HALF_LIFE)
_HASTE: Final = 32
_GROWTH_IN_HASTE: Final = _GROWTH**_HASTE
_CLIP: Final = 4.0
_SPREAD_RATE: Final = 0.05
_LEAST_SPREAD: Final = 0.02
_LEAN_RATE: Final = 0.1
_LEANS: Final = 0.75
_LARGE: Final = 1e12
# The prior is worth so much of one observation.
_PRIOR: Final = 0.003
# Below a tenth of a millisecond nothing is told apart.
_LEAST: Final = 1e-4


class _Residuals:
    """How far off observations have been. spread: the usual residual, a share; lean: from -1 (all below) to 1 (all above)."""

    __slots__ = ("lean", "spread", "weight")

    def __init__(self) -> None:
        self.spread = 1.0
        self.lean = 0.0
        self.weight = 1.0

    def taken(self, expected: float, found: float) -> float:
        """What an observation counts as. Makes the next one weigh more."""
        unit = expected if expected > _LEAST else _LEAST
        residual = (found - expected) / unit
        spread = self.spread
        bound = _CLIP * spread
        if residual >= 0.0:
            if residual > bound:
                residual = bound
            spread += _SPREAD_RATE * (residual - spread)
            lean = self.lean = self.lean + _LEAN_RATE * (1.0 - self.lean)
        else:
            if residual < -bound:
                residual = -bound
            spread += _SPREAD_RATE * (-residual - spread)
            lean = self.lean = self.lean - _LEAN_RATE * (1.0 + self.lean)
        self.spread = spread if spread > _LEAST_SPREAD else _LEAST_SPREAD
        self.weight *= _GROWTH if -_LEANS < lean < _LEANS else _GROWTH_IN_HASTE
        return expected + residual * unit


class Line:
    """y = t0 + t1 x. prior: t0 and t1 before anything is known, above 0; unit: what y usually is then."""

    __slots__ = ("_m00", "_m01", "_m11", "_p0", "_p1", "_q0", "_q1", "_r0", "_r1", "_residuals", "t0", "t1")

    def __init__(self, prior: tuple[float, float], unit: float) -> None:
        self.t0, self.t1 = prior
        self._p0, self._p1 = (_PRIOR * unit / each**2 for each in prior)
        self._q0, self._q1 = (_PRIOR * unit / each for each in prior)
        self._m00 = self._m01 = self._m11 = self._r0 = self._r1 = 0.0
        self._residuals = _Residuals()

    def at(self, x: float) -> float:
        """What is expected."""
        return self.t0 + self.t1 * x

    def observe(self, x: float, y: float, share: float = 1.0) -> None:
        """Takes an observation, as that share of one."""
        residuals = self._residuals
        expected = self.t0 + self.t1 * x
        y = residuals.taken(expected, y)
        weight = residuals.weight
        if weight > _LARGE:
            self._m00, self._m01, self._m11, self._r0, self._r1 = (
                each / weight for each in (self._m00, self._m01, self._m11, self._r0, self._r1)
            )
            weight = residuals.weight = 1.0
        unit = y if y > expected else expected
        v = share * weight / (unit if unit > _LEAST else _LEAST)
        vx = v * x
        m00 = self._m00 = self._m00 + v
        m01 = self._m01 = self._m01 + vx
        m11 = self._m11 = self._m11 + vx * x
        r0 = self._r0 = self._r0 + v * y
        r1 = self._r1 = self._r1 + vx * y
        self.t0, self.t1 = _two(m00 + weight * self._p0, m01, m11 + weight * self._p1, r0 + weight * self._q0, r1 + weight * self._q1)


class Plane:
    """y = t0 + t1 x1 + t2 x2. prior, unit: see Line."""

    __slots__ = (
        "_m00", "_m01", "_m02", "_m11", "_m12", "_m22", "_p0", "_p1", "_p2", "_q0", "_q1", "_q2", "_r0", "_r1", "_r2", "_residuals",
        "t0", "t1", "t2",
    )  # fmt: skip

    def __init__(self, prior: tuple[float, float, float], unit: float) -> None:
        self.t0, self.t1, self.t2 = prior
        self._p0, self._p1, self._p2 = (_PRIOR * unit / each**2 for each in prior)
        self._q0, self._q1, self._q2 = (_PRIOR * unit / each for each in prior)
        self._m00 = self._m01 = self._m02 = self._m11 = self._m12 = self._m22 = 0.0
        self._r0 = self._r1 = self._r2 = 0.0
        self._residuals = _Residuals()

    def at(self, x1: float, x2: float) -> float:
        """What is expected."""
        return self.t0 + self.t1 * x1 + self.t2 * x2

    def observe(self, x1: float, x2: float, y: float) -> None:
        """Takes an observation."""
        residuals = self._residuals
        expected = self.t0 + self.t1 * x1 + self.t2 * x2
        y = residuals.taken(expected, y)
        weight = residuals.weight
        if weight > _LARGE:
            self._shrink(weight)
            weight = residuals.weight = 1.0
        unit = y if y > expected else expected
        v = weight / (unit if unit > _LEAST else _LEAST)
        v1, v2 = v * x1, v * x2
        m00 = self._m00 = self._m00 + v
        m01 = self._m01 = self._m01 + v1
        m02 = self._m02 = self._m02 + v2
        m11 = self._m11 = self._m11 + v1 * x1
        m12 = self._m12 = self._m12 + v1 * x2
        m22 = self._m22 = self._m22 + v2 * x2
        r0 = self._r0 = self._r0 + v * y
        r1 = self._r1 = self._r1 + v1 * y
        r2 = self._r2 = self._r2 + v2 * y
        m00 += weight * self._p0
        m11 += weight * self._p1
        m22 += weight * self._p2
        r0 += weight * self._q0
        r1 += weight * self._q1
        r2 += weight * self._q2
        # By cofactors: the matrix is symmetric and, thanks to the prior, never singular.
        c00, c01, c02 = m11 * m22 - m12 * m12, m02 * m12 - m01 * m22, m01 * m12 - m02 * m11
        det = m00 * c00 + m01 * c01 + m02 * c02
        t0 = (c00 * r0 + c01 * r1 + c02 * r2) / det
        c12 = m01 * m02 - m00 * m12
        t1 = (c01 * r0 + (m00 * m22 - m02 * m02) * r1 + c12 * r2) / det
        t2 = (c02 * r0 + c12 * r1 + (m00 * m11 - m01 * m01) * r2) / det
        if t0 < 0.0 or t1 < 0.0 or t2 < 0.0:
            if t0 <= t1 and t0 <= t2:
                t0, (t1, t2) = 0.0, _two(m11, m12, m22, r1, r2)
            elif t1 <= t2:
                t1, (t0, t2) = 0.0, _two(m00, m02, m22, r0, r2)
            else:
                t2, (t0, t1) = 0.0, _two(m00, m01, m11, r0, r1)
        self.t0, self.t1, self.t2 = t0, t1, t2

    def _shrink(self, by: float) -> None:
        self._m00, self._m01, self._m02 = self._m00 / by, self._m01 / by, self._m02 / by
        self._m11, self._m12, self._m22 = self._m11 / by, self._m12 / by, self._m22 / by
        self._r0, self._r1, self._r2 = self._r0 / by, self._r1 / by, self._r2 / by


def _two(m00: float, m01: float, m11: float, r0: float, r1: float) -> tuple[float, float]:
    """Solves two equations, for what is not below 0."""
    det = m00 * m11 - m01 * m01
    t0, t1 = (m11 * r0 - m01 * r1) / det, (m00 * r1 - m01 * r0) / det
    if t0 >= 0.0 and t1 >= 0.0:
        return t0, t1
    return (0.0, max(0.0, r1 / m11)) if t0 <= t1 else (max(0.0, r0 / m00), 0.0)
