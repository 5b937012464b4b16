"""A Bayesian linear model of success that plans share: hybrid ridge regression (Li et al. 2010, algorithm 2, as a hierarchy of priors).

    r = x' theta_p + noise               x = [1, features], (d,); r in [0, 1]; noise ~ N(0, v)
    theta_p = pool + group_g(p) + e_0 own_p

    pool  ~ N(mean e_0, v / diag(pool, slopes, ...))        what all plans have in common
    group ~ N(0,        v / diag(intercept, slopes, ...))   of a model (in one reasoning mode): all its plans read it
    own   ~ N(0,        v / residual)                       the level of a plan beside its model's others

which is ridge regression on the design [x | x of the group | 1 of the plan] (Daume 2007). A plan that nobody has tried starts from its
model, and a new model from the pool. Blocks of different groups meet in the pool only, so the posterior is exact by elimination from the
leaves: P inversions of (d, d), never one of the whole design.

What is learned are sums over each plan's observations: they add up, in any order, over any number of processes. They decay in wall time
(forward decay, Cormode et al. 2009): weight 2^((at - landmark) / half life). The landmark stands on a grid of 16 half lives, so moving it
multiplies by a power of two, without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRID = 16
# Of sums from which all was taken back, in observations.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Sums:
    """What is kept of P plans' observations; flat in their number.

    gram: (P, d, d), sum of w x x'. moment: (P, d), sum of w r x. squares: (P,), sum of w^2, decayed like the others. epoch: the landmark,
    in GRID half lives since 1970. latest: when the newest observation was decided; -inf: there is none.
    """

    gram: Floats
    moment: Floats
    squares: Floats
    epoch: int
    latest: float


@dataclass(frozen=True)
class Posterior:
    """mean: (P, d), cov: (P, d, d): of each plan's theta. evidence: (P,), how many observations that is worth."""

    mean: Floats
    cov: Floats
    evidence: Floats


@dataclass(frozen=True)
class Batch:
    """n observations. plan, at (seconds since 1970), weight: (n,). x: (n, d). count: (n,), 1, 0 or -1. gain: (n,), change of w r."""

    plan: Ints
    x: Floats
    count: Floats
    gain: Floats
    weight: Floats
    at: Floats

    def part(self, start: int, stop: int) -> Batch:
        """Those from start to before stop."""
        cut = slice(start, stop)
        return Batch(self.plan[cut], self.x[cut], self.count[cut], self.gain[cut], self.weight[cut], self.at[cut])


@dataclass(frozen=True)
class Ridge:
    """The model over plans of these groups (0, 1, ..., one for each plan). features: without the constant 1. half_life: seconds; None:
    nothing is forgotten. noise: v, a variance. slopes, pool, intercept, residual: precisions in observations, see above. mean: of the
    pool's level."""

    groups: tuple[int, ...]
    features: int = 0
    half_life: float | None = None
    noise: float = 0.2
    slopes: float = 60.0
    pool: float = 20.0
    intercept: float = 4.0
    residual: float = 10.0
    mean: float = 0.8

    @property
    def dim(self) -> int:
        """Numbers in x."""
        return self.features + 1

    def empty(self) -> Sums:
        """No observations."""
        plans, d = len(self.groups), self.dim
        return Sums(np.zeros((plans, d, d)), np.zeros((plans, d)), np.zeros(plans), 0, -math.inf)

    def added(self, sums: Sums, batch: Batch, share: Floats | float = 1.0) -> Sums:
        """The sums with these observations. share: of each observation that counts, (n,)."""
        if not len(batch.plan):
            return sums
        latest = max(sums.latest, float(batch.at.max()))
        sums = self._moved(sums, latest)
        decay = np.broadcast_to(share, batch.at.shape) * self._decay(batch.at, sums.epoch)
        mass = decay * batch.count * batch.weight
        gram, moment, squares = sums.gram.copy(), sums.moment.copy(), sums.squares.copy()
        for plan in np.unique(batch.plan):
            of = batch.plan == plan
            x = batch.x[of]
            gram[plan] += x.T @ (mass[of, None] * x)
            moment[plan] += (decay * batch.gain)[of] @ x
            squares[plan] += mass[of] @ batch.weight[of]
        return Sums(gram, moment, squares, sums.epoch, latest)

    def merged(self, one: Sums, other: Sums) -> Sums:
        """The sums of both; what either saw must be unknown to the other."""
        latest = max(one.latest, other.latest)
        one, other = self._moved(one, latest), self._moved(other, latest)
        return Sums(one.gram + other.gram, one.moment + other.moment, one.squares + other.squares, one.epoch, latest)

    def kept(self, sums: Sums, share: float) -> Sums:
        """The sums, where only a share of everything counts."""
        return replace(sums, gram=sums.gram * share, moment=sums.moment * share, squares=sums.squares * share)

    def posterior(self, sums: Sums) -> Posterior:
        """What is believed of each plan as of the newest observation. Raises ValueError where more was taken back than was learned."""
        information, moment = self._information(sums)
        evidence = information[:, 0, 0].copy()
        if evidence.min() < -ROUNDING:
            raise ValueError("more was taken back than was learned")

        # Up: what a plan tells of its group once its own level is integrated out, and a group of the pool.
        own = 1.0 / (self.residual + evidence)
        first = information[:, 0, :]
        told = information - own[:, None, None] * first[:, :, None] * first[:, None, :]
        heard = moment - (own * moment[:, 0])[:, None] * first
        member = _membership(self.groups)
        prior = self._precisions(self.intercept)
        inverse = _inverse(np.tensordot(member, told, 1) + np.diag(prior))
        group_moment = member @ heard
        pull = inverse * prior[None, None, :]
        pool_prior = self._precisions(self.pool)
        pool_cov = _inverse(np.diag(pool_prior) + (np.diag(prior)[None] - prior[None, :, None] * pull).sum(0))
        start = np.zeros(self.dim)
        start[0] = self.mean * self.pool
        pool_mean = pool_cov @ (start + (prior * np.einsum("gij,gj->gi", inverse, group_moment)).sum(0))

        # Down: a group given the pool, a plan given its group.
        group_mean = np.einsum("gij,gj->gi", inverse, group_moment) + pull @ pool_mean
        group_cov = inverse + pull @ pool_cov @ pull.transpose(0, 2, 1)
        index = np.asarray(self.groups)
        mean, cov = group_mean[index], group_cov[index]
        # theta_p = (I - own e_0 first') (pool + group) + own moment_0 e_0, and the variance that its own level has left.
        turn = np.broadcast_to(np.eye(self.dim), cov.shape).copy()
        turn[:, 0, :] -= own[:, None] * first
        mean = np.einsum("pij,pj->pi", turn, mean)
        mean[:, 0] += own * moment[:, 0]
        cov = turn @ cov @ turn.transpose(0, 2, 1)
        cov[:, 0, 0] += own
        return Posterior(mean, self.noise * cov, evidence)

    def _information(self, sums: Sums) -> tuple[Floats, Floats]:
        """Gram and moment of each plan as of the newest observation, in observations: n of weight 10 each are worth n (Kish 1965)."""
        scale = self._decay(np.asarray(sums.latest), sums.epoch) if math.isfinite(sums.latest) else 1.0
        mass = sums.gram[:, 0, 0]
        worth = np.divide(mass, sums.squares, out=np.ones_like(mass), where=sums.squares > 0)
        worth = np.clip(worth, 0.0, 1.0) / scale  # weights are at least 1; only the rounding of what was taken back leads elsewhere
        return sums.gram * worth[:, None, None], sums.moment * worth[:, None]

    def _precisions(self, level: float) -> Floats:
        precisions = np.full(self.dim, self.slopes)
        precisions[0] = level
        return precisions

    def _decay(self, at: Floats, epoch: int) -> Floats:
        """Weights of observations that were decided at these times."""
        if self.half_life is None:
            return np.ones_like(at)
        return np.exp2(at / self.half_life - GRID * epoch)

    def _moved(self, sums: Sums, latest: float) -> Sums:
        """The same sums at the landmark that an observation of this time asks for."""
        if self.half_life is None or not math.isfinite(latest):
            return sums
        epoch = max(sums.epoch, math.floor(latest / self.half_life / GRID))
        if epoch == sums.epoch:
            return sums
        return replace(self.kept(sums, math.ldexp(1.0, GRID * (sums.epoch - epoch))), epoch=epoch)


def _membership(groups: Sequence[int]) -> Floats:
    """(G, P): 1 where a plan is of the group."""
    member = np.zeros((max(groups) + 1, len(groups)))
    member[list(groups), range(len(groups))] = 1.0
    return member


def _inverse(precision: Floats) -> Floats:
    """Of symmetric positive definite matrices, one or many."""
    half = np.linalg.inv(np.linalg.cholesky(precision))
    found: Floats = half.swapaxes(-1, -2) @ half
    return found
