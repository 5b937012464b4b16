"""Strengths of players from the games between them (Bradley and Terry 1952), by Newman's iteration (2023, arXiv 2207.00076).

    P(i beats j) = p_i / (p_i + p_j)
    p_i <- (a_i / (p_i + 1) + sum_j w_ij p_j / (p_i + p_j)) / (b_i / (p_i + 1) + sum_j w_ji / (p_i + p_j))

w_ij: games that i won of j, fractions too; a tie is half a game for each. a_i, b_i: games won of and lost to a player of strength 1, which
are the prior; one each is the logistic distribution of log p_i. The prior makes the undefeated finite and fixes the scale, so nothing is
normalised. Each p_i is replaced in place, one after another.

The prior alone holds the common factor of all strengths, which the iteration finds slowly. So each sweep ends with a Newton step along it:
the games do not depend on it, and the step is nothing at the maximum, which stays where it is.

Errors: the inverse of the Fisher information of the log p_i, with w_ij + w_ji games between i and j and a_i + b_i against strength 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_SWEEPS: Final = 1_000
_Games: TypeAlias = list[tuple[int, float, float]]  # against whom, won, lost
_LONGEST_STEP: Final = 1.0


class Strengths(NamedTuple):
    """logs: (n,) natural logarithms of the strengths; 0 is the prior's player. covariance: (n, n), of logs. sweeps: that were made.
    converged: the last of them changed no log by more than the tolerance."""

    logs: tuple[float, ...]
    covariance: NDArray[np.float64]
    sweeps: int
    converged: bool

    def error(self, one: int, other: int) -> float:
        """Standard error of the difference of two logs."""
        both = self.covariance
        return math.sqrt(max(0.0, float(both[one, one] + both[other, other] - 2.0 * both[one, other])))


def strengths(
    wins: ArrayLike,
    prior_wins: Sequence[float] | None = None,
    prior_losses: Sequence[float] | None = None,
    tolerance: float = 1e-10,
    most_sweeps: int = MOST_SWEEPS,
) -> Strengths:
    """The most probable strengths. wins: (n, n), w_ij as above, 0 for i = j. prior_wins, prior_losses: (n,), a_i and b_i, above 0; None:
    1 each. Raises ValueError for shapes that do not fit, and for numbers that are not such counts."""
    won = np.asarray(wins, dtype=np.float64)
    won = won.reshape(0, 0) if won.size == 0 else won
    n = len(won)
    ours = np.ones(n) if prior_wins is None else np.asarray(prior_wins, dtype=np.float64)
    theirs = np.ones(n) if prior_losses is None else np.asarray(prior_losses, dtype=np.float64)
    if won.shape != (n, n) or ours.shape != (n,) or theirs.shape != (n,):
        raise ValueError("wins are a square, and the prior has one number for each player")
    if not (np.isfinite(won).all() and (won >= 0.0).all() and not won.diagonal().any()):
        raise ValueError("wins are numbers from 0 on, and nobody plays against themselves")
    if not all(np.isfinite(each).all() and (each > 0.0).all() for each in (ours, theirs)):
        raise ValueError("the prior's games are above 0")
    logs, sweeps, converged = _iterated(_met(won), ours.tolist(), theirs.tolist(), tolerance, most_sweeps)
    return Strengths(logs, _covariance(np.asarray(logs), won, ours + theirs), sweeps, converged)


def _met(won: NDArray[np.float64]) -> list[_Games]:
    """The games of each player; few have met, so lists are faster than rows."""
    return [[(int(j), float(won[i, j]), float(won[j, i])) for j in np.flatnonzero(won[i] + won[:, i])] for i in range(len(won))]


def _iterated(
    games: list[_Games], ours: list[float], theirs: list[float], tolerance: float, most_sweeps: int
) -> tuple[tuple[float, ...], int, bool]:
    p = [1.0] * len(games)
    for sweep in range(1, most_sweeps + 1):
        before = p.copy()
        for i, met in enumerate(games):
            own = p[i]
            above, below = ours[i] / (own + 1.0), theirs[i] / (own + 1.0)
            for j, won, lost in met:
                other = p[j]
                above += won * other / (own + other)
                below += lost / (own + other)
            p[i] = above / below
        factor = _scale(p, ours, theirs)
        p = [each * factor for each in p]
        if all(abs(math.log(now / then)) <= tolerance for now, then in zip(p, before, strict=True)):
            return tuple(map(math.log, p)), sweep, True
    return tuple(map(math.log, p)), most_sweeps, False


def _scale(p: list[float], ours: list[float], theirs: list[float]) -> float:
    """One Newton step along the common factor, of the prior's log-density: a_i log s(x_i) + b_i log s(-x_i), s the logistic function."""
    slope = bend = 0.0
    for own, a, b in zip(p, ours, theirs, strict=True):
        share = own / (own + 1.0)
        slope += a - (a + b) * share
        bend += (a + b) * share * (1.0 - share)
    return math.exp(max(-_LONGEST_STEP, min(_LONGEST_STEP, slope / bend))) if bend > 0.0 else 1.0


def _covariance(logs: NDArray[np.float64], won: NDArray[np.float64], anchored: NDArray[np.float64]) -> NDArray[np.float64]:
    half = 0.5 * np.tanh(0.5 * (logs[:, None] - logs[None, :]))
    between = (won + won.T) * (0.25 - half * half)  # n_ij P_ij (1 - P_ij)
    alone = anchored * (0.25 - (0.5 * np.tanh(0.5 * logs)) ** 2)
    return np.asarray(np.linalg.inv(np.diag(alone + between.sum(axis=1)) - between), dtype=np.float64)
