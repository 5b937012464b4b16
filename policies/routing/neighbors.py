"""Nearest neighbours: how did each plan do on requests like this one?

    s_i = max(0, cos(x, x_i))                              over the rows i of plan a in memory
    quality(a) = (m mean_a + sum_N s_i q_i) / (m + sum_N s_i)      N: the k rows of a with the largest s_i; mean_a: see policies.means
    score(a) = quality(a) - prices.cost * cost_a - prices.latency * latency_a; the best serves, of several alike the baseline

So with few rows, or none like this one, a plan stands at its own mean, and one without any at the prior. Only the floor explores.

The memory of each plan is a weighted sample without replacement (Efraimidis and Spirakis 2006) of all its outcomes, those with the smallest

    log2(-ln u_i / w_i) - t_i / H      u_i: hash of the decision's id; w_i: 1 / labelling probability; t_i: its time; H: half-life

which is uniform but for the weight 2^(t_i / H) w_i: it forgets as the means do. As the numbers depend on nothing but the outcome, the same
outcomes leave the same memory in whatever order and on however many replicas they arrive. A correction finds its row by the hash. What is
taken back leaves a gap that outcomes which were let go before do not fill. 8 plans, 512 rows of 64 numbers: 1 MB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from policies import decay
from policies.adapting import by_plan
from policies.means import Means, estimates, folded, interval, nothing
from policies.policy import Encoder, Kit, plan_names
from policies.routing.base import favourite, priced
from policies.states import Arrays
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation

if TYPE_CHECKING:
    import numpy.typing as npt

    from policies.values.situation import Vector

STATE_BYTES = 10_000_000


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """encoder: whose features tell what is alike. k: neighbours. capacity: rows of each plan. mean_weight: m, in neighbours. prior_mean,
    prior_strength, half_life_s: of the means (see best_single)."""

    encoder: str = "static"
    k: int = 60
    capacity: int = 512
    mean_weight: float = 10.0
    prior_mean: float = 0.5
    prior_strength: float = 2.0
    half_life_s: float = 30 * 86_400.0


@dataclass(frozen=True)
class State:
    """(slots, plans) each, the rows of a plan by `order`. ids: hash of the decision's id. order: see above; infinite in an empty slot.
    quality: 0 to 1. rows: (slots, plans, d), features of length 1; 0 in an empty slot. means: of all outcomes."""

    ids: npt.NDArray[np.uint64]
    order: npt.NDArray[np.float64]
    quality: npt.NDArray[np.float32]
    rows: npt.NDArray[np.float32]
    means: Means


class _Rows(NamedTuple):
    """What one plan has in memory, (slots, ...) each."""

    ids: npt.NDArray[np.uint64]
    order: npt.NDArray[np.float64]
    quality: npt.NDArray[np.float32]
    rows: npt.NDArray[np.float32]


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = decay.problems(params.half_life_s)
    if not 1 <= params.k <= params.capacity:
        found.append("`k` must be at least 1, and at most `capacity`")
    if params.capacity * len(plans) > 65_536:
        found.append("`capacity` is too large: over all plans there may be 65,536 rows")
    if not 0 <= params.prior_mean <= 1:
        found.append("`prior_mean` must lie between 0 and 1")
    found += [f"`{name}` must be positive and finite" for name in ("prior_strength", "mean_weight") if not 0 < getattr(params, name) < 1e9]
    return found


def build(params: Params, plans: Sequence[Plan], kit: Kit) -> Neighbors:
    """The policy. Raises ValueError where the encoder cannot be had, or where the memory would take more than 10 MB."""
    encoder = kit.encoder(params.encoder)
    if params.capacity * len(plans) * (encoder.dim * 4 + 20) > STATE_BYTES:
        raise ValueError(f"`capacity` is too large: {params.capacity} rows of {encoder.dim} numbers for {len(plans)} plans exceed 10 MB")
    return Neighbors(params, plans, encoder, kit.baseline)


class Neighbors:
    """plans: of the virtual model. encoder: whose features tell what is alike. baseline: a plan's name."""

    def __init__(self, params: Params, plans: Sequence[Plan], encoder: Encoder, baseline: str) -> None:
        self._params = params
        self._plans = plan_names(plans)
        self._baseline = baseline
        self.encoders = (encoder,)

    def empty(self) -> State:
        """An empty memory."""
        shape = (0, len(self._plans))
        return State(
            np.zeros(shape, np.uint64),
            np.zeros(shape),
            np.zeros(shape, np.float32),
            np.zeros((*shape, self.encoders[0].dim), np.float32),
            nothing(len(self._plans)),
        )

    def estimate(self, state: State, situation: Situation) -> Scores:
        """Each plan's mean over what is like the request."""
        params = self._params
        known = estimates(state.means, situation.now, params.half_life_s, params.prior_mean, params.prior_strength)
        mass, gained = self._near(state, situation)
        quality = []
        bounds = []
        for each in situation.candidates:
            weight = params.mean_weight + mass[each.index]
            quality.append((params.mean_weight * known[each.index].mean + gained[each.index]) / weight)
            bounds.append(interval(quality[-1], weight))
        low, high = zip(*bounds, strict=True)
        return Scores(tuple(quality), low, high, priced(quality, situation))

    def propensities(self, _state: State, situation: Situation, scores: Scores) -> Odds:
        """One-hot at the best score."""
        return Odds(favourite(scores.score, situation, self._baseline))

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """Remembers, corrects and forgets rows; the sums of the means follow."""
        params = self._params
        means = folded(state.means, observations, self._plans, params.half_life_s)
        name = self.encoders[0].name
        changes: dict[int, dict[int, Observation]] = {}
        for each in observations:
            if each.plan in self._plans and (each.quality is None or name in each.blocks):
                changes.setdefault(self._plans[each.plan], {})[_hashed(each.decision_id)] = each
        plans = [
            self._changed(_rows(state, plan), changes[plan]) if plan in changes else _rows(state, plan) for plan in range(len(self._plans))
        ]
        slots = max(len(held.ids) for held in plans)
        shape = (slots, len(plans))
        ids, order, quality = np.zeros(shape, np.uint64), np.full(shape, math.inf), np.zeros(shape, np.float32)
        rows = np.zeros((*shape, state.rows.shape[2]), np.float32)
        for plan, held in enumerate(plans):
            filled = len(held.ids)
            ids[:filled, plan], order[:filled, plan] = held.ids, held.order
            quality[:filled, plan], rows[:filled, plan] = held.quality, held.rows
        return State(ids, order, quality, rows, means)

    def adapted(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """The memory and the means, over other plans: see policies.adapting."""
        found = by_plan(found, dict.fromkeys(("means.number", "means.squares", "means.gained"), 0.0), old, new)
        return by_plan(found, {"ids": 0.0, "order": math.inf, "quality": 0.0, "rows": 0.0}, old, new, axis=1)

    def statistics(self, state: State) -> dict[str, Any]:
        """As of the newest observation: mean, its interval, the evidence in labels, and the rows in memory."""
        params = self._params
        known = estimates(state.means, state.means.latest, params.half_life_s, params.prior_mean, params.prior_strength)
        rows = np.isfinite(state.order).sum(axis=0)
        return {name: {**known[index]._asdict(), "rows": int(rows[index])} for name, index in self._plans.items()}

    def _near(self, state: State, situation: Situation) -> tuple[list[float], list[float]]:
        """For each plan: sum of the neighbours' likeness, and of likeness times quality."""
        x = situation.blocks.get(self.encoders[0].name)
        slots, plans = state.ids.shape
        if x is None or not slots:
            return [0.0] * plans, [0.0] * plans
        alike = np.ascontiguousarray((state.rows.reshape(slots * plans, -1) @ _unit(x)).reshape(slots, plans).T)
        # Sorting all is faster than to select the k-th: it is vectorised.
        least = np.sort(alike, axis=1)[:, max(0, slots - self._params.k)]
        alike *= alike >= np.maximum(least, 0.0)[:, None]
        return alike.sum(axis=1).tolist(), np.vecdot(alike, state.quality.T).tolist()

    def _changed(self, known: _Rows, changes: dict[int, Observation]) -> _Rows:
        """A plan's rows with these outcomes in them, sorted and trimmed."""
        kept = ~np.isin(known.ids, np.array(list(changes), np.uint64))
        new = [(key, each) for key, each in changes.items() if each.quality is not None]
        name, half_life = self.encoders[0].name, self._params.half_life_s
        ids = np.concatenate((known.ids[kept], np.array([key for key, _ in new], np.uint64)))
        order = np.concatenate((known.order[kept], np.array([_order(key, each, half_life) for key, each in new])))
        quality = np.concatenate((known.quality[kept], np.array([each.quality for _, each in new], np.float32)))
        rows = np.concatenate((known.rows[kept], *(_unit(each.blocks[name])[None] for _, each in new)))
        first = np.lexsort((ids, order))[: self._params.capacity]
        return _Rows(ids[first], order[first], quality[first], rows[first])


def _rows(state: State, plan: int) -> _Rows:
    filled = int(np.isfinite(state.order[:, plan]).sum())
    return _Rows(state.ids[:filled, plan], state.order[:filled, plan], state.quality[:filled, plan], state.rows[:filled, plan])


def _hashed(decision_id: str) -> int:
    return int.from_bytes(blake2b(decision_id.encode(), digest_size=8).digest(), "big")


def _order(key: int, observation: Observation, half_life_s: float) -> float:
    """The smaller, the longer it is kept."""
    u = ((key >> 11) + 0.5) / 2**53
    return math.log2(-math.log(u) / observation.weight) - observation.at / half_life_s


def _unit(x: Vector) -> Vector:
    length = math.sqrt(float(np.dot(x, x)))
    return x / np.float32(length) if length > 0 else x
