"""A Bayesian linear model of success that plans share: hybrid ridge regression (Li et al. 2010, algorithm 2, as a hierarchy of priors).

    r = x' theta_p + noise               x = [1, features], (d,); r in [0, 1]; noise ~ N(0, v)
    theta_p = pool + group_g(p) + e_0 own_p

    pool  ~ N(mean e_0, v / diag(pool, slopes, ...))        what all plans have in common
    group ~ N(0,        v / diag(intercept, slopes, ...))   of a model (in one reasoning mode): all its plans read it
    own   ~ N(0,        v / residual)                       the level of a plan beside its model's others

which is ridge regression on the design [x | x of the group | 1 of the plan] (Daume 2007). A plan that nobody has tried starts from its
model, and a new model from the pool. Blocks of different groups meet in the pool only, so the posterior is exact by elimination from the
leaves: P inversions of (d, d), never one of the whole design.

A plan that asks its model several times may have a response curve (models/response.py): its quality follows from that of one answer,

    quality_p = q + rho_k h_N(q) + own_p     q = x' (pool + group_g(p)), rho_k ~ N(prior of its kind, v / efficiency)

so that what one N teaches of one model is known of other N and other models. That is not linear in q. It is taken as its tangent where the
models are believed to be, slope q + head rho_k + offset, and believed anew, `ROUNDS` times (Gauss-Newton). The rho belong to no group, so
the elimination is the same with them beside the pool. The own levels of these plans, and of the plain plan of such a model, are what the
curve misses: their precision is `misfit`. So the posterior stays a function of the sums.

What is learned are sums over each plan's observations: they add up, in any order, over any number of processes. They decay in wall time
(forward decay, Cormode et al. 2009): weight 2^((at - landmark) / half life). The landmark stands on a grid of 16 half lives, so moving it
multiplies by a power of two, without rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from models.response import Response, headroom

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRID = 16
ROUNDS = 6
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
class _Tangent:
    """Of each plan's curve, (P,) each: its level is slope p + head rho_k + offset. Without a curve 1, 0 and 0."""

    slope: Floats
    head: Floats
    offset: Floats


@dataclass(frozen=True)
class _Up:
    """theta_g ~ N(base_g + pull_g u, v inverse_g), u = [pool, rho] ~ N(mean, v cov)."""

    inverse: Floats
    base: Floats
    pull: Floats
    mean: Floats
    cov: Floats


@dataclass(frozen=True)
class Ridge:
    """The model over plans of these groups (0, 1, ..., one for each plan). features: without the constant 1. half_life: seconds; None:
    nothing is forgotten. noise: v, a variance. slopes, pool, intercept, residual: precisions in observations, see above. mean: of the
    pool's level. curves: of each plan, None where it has none; one of a single try is the plain plan of a model that has others. misfit:
    precision of the own level of a plan with a curve; efficiency: of the rho of a kind."""

    groups: tuple[int, ...]
    features: int = 0
    half_life: float | None = None
    noise: float = 0.2
    slopes: float = 60.0
    pool: float = 20.0
    intercept: float = 4.0
    residual: float = 10.0
    mean: float = 0.8
    efficiency: float = 2.0
    misfit: float = 200.0
    curves: tuple[Response | None, ...] | None = None

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
        tangent, up = self._believed(information, moment)

        # Down: a group given what is common, a plan given its group.
        group_mean = up.base + up.pull @ up.mean
        group_cov = up.inverse + up.pull @ up.cov @ up.pull.transpose(0, 2, 1)
        index = np.asarray(self.groups)
        mean, cov = group_mean[index], group_cov[index]
        # theta_p = slope (I - own e_0 first') theta_g + own moment_0 e_0, and the variance that its own level has left.
        own = self._own(evidence)
        turn = np.broadcast_to(np.eye(self.dim), cov.shape).copy()
        turn[:, 0, :] -= own[:, None] * information[:, 0, :]
        turn *= tangent.slope[:, None, None]
        mean = np.einsum("pij,pj->pi", turn, mean)
        mean[:, 0] += own * (moment[:, 0] - tangent.offset * evidence) + tangent.offset
        cov = turn @ cov @ turn.transpose(0, 2, 1)
        cov[:, 0, 0] += own
        if self._kinds:  # and head (1 - own n) rho_k, which varies with theta_g
            rho = (tangent.head * (1.0 - own * evidence))[:, None] * self._kind
            mean[:, 0] += rho @ up.mean[self.dim :]
            common = np.einsum("pk,kj->pj", rho, up.cov[self.dim :])
            along = np.einsum("pij,pj->pi", turn @ up.pull[index], common)
            cov[:, 0, :] += along
            cov[:, :, 0] += along
            cov[:, 0, 0] += np.einsum("pk,pk->p", common[:, self.dim :], rho)
        return Posterior(mean, self.noise * cov, evidence)

    def efficiencies(self, sums: Sums) -> dict[str, tuple[float, float]]:
        """Of each kind of curve: mean and standard deviation of its rho."""
        if not self._kinds:
            return {}
        _, up = self._believed(*self._information(sums))
        sds = np.sqrt(self.noise * np.diag(up.cov)[self.dim :])
        return dict(zip(self._kinds, zip(up.mean[self.dim :].tolist(), sds.tolist(), strict=True), strict=True))

    def _believed(self, information: Floats, moment: Floats) -> tuple[_Tangent, _Up]:
        """The tangents of the curves at what is believed, and what is believed with them."""
        total = information[:, 0, :].sum(0)
        x = total / total[0] if total[0] > ROUNDING else np.eye(self.dim)[0]  # the mean of what was asked
        levels, rho = np.full(len(self._member), self.mean), self._expected
        for _ in range(ROUNDS if len(rho) else 1):
            tangent = self._tangent(levels, rho)
            up = self._up(information, moment, tangent)
            levels, rho = (up.base + up.pull @ up.mean) @ x, up.mean[self.dim :]
        return tangent, up

    def _tangent(self, levels: Floats, rho: Floats) -> _Tangent:
        """levels: of the groups. rho: of the kinds."""
        plans = len(self.groups)
        slope, head, offset = np.ones(plans), np.zeros(plans), np.zeros(plans)
        for plan, (group, curve) in enumerate(zip(self.groups, self._curves, strict=True)):
            if curve is not None and curve.tries > 1:
                p = min(max(float(levels[group]), 0.0), 1.0)
                head[plan], bend = headroom(p, curve.tries)
                efficiency = min(max(float(rho[self._kinds.index(curve.kind)]), -1.0), 1.0)
                slope[plan] = max(0.0, 1.0 + efficiency * bend)  # a better model is never the worse for it
                offset[plan] = (1.0 - slope[plan]) * p
        return _Tangent(slope, head, offset)

    def _up(self, information: Floats, moment: Floats, tangent: _Tangent) -> _Up:
        """What a plan tells of its group once its own level is integrated out, and a group of what all have in common."""
        first, d, kinds = information[:, 0, :], self.dim, len(self._kinds)
        own = self._own(first[:, 0])
        moment = moment - tangent.offset[:, None] * first
        told = information - own[:, None, None] * first[:, :, None] * first[:, None, :]
        heard = moment - (own * moment[:, 0])[:, None] * first
        member = self._member * tangent.slope
        rho = tangent.head[:, None] * self._kind
        prior = self._precisions(self.intercept)
        inverse = _inverse(np.tensordot(member * tangent.slope, told, 1) + np.diag(prior))
        base = np.einsum("gij,gj->gi", inverse, member @ heard)
        # Between theta_g and what is common: the prior ties it to the pool, its plans to the rho of their kinds.
        ties = np.zeros((len(member), d, d + kinds))
        ties[:, :, :d] = -np.diag(prior)
        ties[:, :, d:] = np.tensordot(member, told[:, :, :1] * rho[:, None, :], 1)
        pull, back = -inverse @ ties, ties.transpose(0, 2, 1)
        precision, start = self._common
        left = back @ pull
        left[:, range(d), range(d)] += prior
        left, start = left.sum(0), start - (back @ base[:, :, None])[:, :, 0].sum(0)
        left[d:, d:] += rho.T @ (told[:, :1, 0] * rho)
        start[d:] += heard[:, 0] @ rho
        cov = _inverse(precision + left)
        mean = cov @ start
        return _Up(inverse, base, pull, mean, cov)

    def _information(self, sums: Sums) -> tuple[Floats, Floats]:
        """Gram and moment of each plan as of the newest observation, in observations: n of weight 10 each are worth n (Kish 1965)."""
        scale = self._decay(np.asarray(sums.latest), sums.epoch) if math.isfinite(sums.latest) else 1.0
        mass = sums.gram[:, 0, 0]
        worth = np.divide(mass, sums.squares, out=np.ones_like(mass), where=sums.squares > 0)
        worth = np.clip(worth, 0.0, 1.0) / scale  # weights are at least 1; only the rounding of what was taken back leads elsewhere
        return sums.gram * worth[:, None, None], sums.moment * worth[:, None]

    @cached_property
    def _curves(self) -> tuple[Response | None, ...]:
        return self.curves or (None,) * len(self.groups)

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        """The kinds of curves that bend, whose rho is to be learned."""
        return tuple(dict.fromkeys(each.kind for each in self._curves if each is not None and each.tries > 1))

    @cached_property
    def _expected(self) -> Floats:
        """Of each kind: the mean of the prior of its rho."""
        known = {each.kind: each.efficiency for each in self._curves if each is not None}
        return np.array([known[kind] for kind in self._kinds])

    @cached_property
    def _kind(self) -> Floats:
        """(P, K): 1 where a plan has a curve of that kind."""
        found = [[float(each is not None and each.kind == kind) for kind in self._kinds] for each in self._curves]
        return np.array(found).reshape(len(self.groups), len(self._kinds))

    @cached_property
    def _common(self) -> tuple[Floats, Floats]:
        """Precision of the prior of [pool, rho], and that times its mean."""
        precision = np.concatenate([self._precisions(self.pool), np.full(len(self._kinds), self.efficiency)])
        mean = np.concatenate([np.eye(self.dim)[0] * self.mean, self._expected])
        return np.diag(precision), precision * mean

    @cached_property
    def _member(self) -> Floats:
        """(G, P): 1 where a plan is of the group."""
        member = np.zeros((max(self.groups) + 1, len(self.groups)))
        member[list(self.groups), range(len(self.groups))] = 1.0
        return member

    @cached_property
    def _stiff(self) -> Floats:
        """The precision of each plan's own level."""
        return np.array([self.residual if each is None else self.misfit for each in self._curves])

    def _own(self, evidence: Floats) -> Floats:
        """The variance of each plan's own level where its model is known, in v."""
        found: Floats = 1.0 / (self._stiff + evidence)
        return found

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


def _inverse(precision: Floats) -> Floats:
    """Of symmetric positive definite matrices, one or many."""
    half = np.linalg.inv(np.linalg.cholesky(precision))
    found: Floats = half.swapaxes(-1, -2) @ half
    return found
