"""A fixed share of users gets another policy: an experiment whose sides stay together, with the probability over all users in the log.

side(unit) = canary where H(seed, policy, unit) < share, else control     unit: the session, else the tenant; without one: control
drawn(a)    = p_side(a)
marginal(a) = (1 - share) p_control(a) + share p_canary(a)            where there is a unit: over the draw of the sides, too

Both policies learn from every observation. An observation's side is known by its unit, so nothing is stored with the decision. The floor is
mixed in only where both sides explore, or the marginal probability would be wrong. `sticky` belongs inside, on both sides: what it adds to
the scores is seen by the side that serves only.

Sample ratio: of the units that outcomes came from, `share` must be the canary's; another ratio says that one side loses its outcomes
(errors, labels that are missing), and that the sides cannot be compared. Units are counted on a sketch of fixed size: each falls into one
of 4,096 slots, and of those that share a slot the one with the smallest hash is counted, whichever side it is on. The counted ones are
independent draws with probability `share`; the e-value against that is sequences.share_evidence, valid at all times together until slots
are shared, at each one thereafter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.offpolicy.sequences import share_evidence
from policies.policy import Encoder, Kit, RoutingPolicy, needed
from policies.states import Arrays
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation
from policies.wrappers.base import Wrapper, adapted, distinct, mixed, normalised, union

SLOTS = 4096
EMPTY = np.uint64(2**64 - 1)
ALARM = math.log(1000.0)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """policy: the name of the configured policy that is tried. share: of the units that get it. seed: another one is another split."""

    policy: str
    share: float = 0.05
    seed: int = 0


def problems(params: Params, _plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work."""
    found = [] if 0 < params.share < 1 else [f"`share` is {params.share:g}; it must lie between 0 and 1"]
    return found + ([] if 0 <= params.seed < 2**64 else ["`seed` must be at least 0 and less than 2**64"])


def build(params: Params, inner: RoutingPolicy[Any], _plans: Sequence[Plan], kit: Kit) -> Canary:
    """The policy, with another one for a share of the units."""
    return Canary(inner, kit.policy(params.policy), params)


@dataclass(frozen=True)
class State:
    """inner: of the control. other: of the canary. requests, weight, quality: (2,), control and canary: outcomes, and their weighted sums.
    units: (slots,) uint64, the smallest hash in each slot, its side in the lowest bit."""

    inner: Any
    other: Any
    requests: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    quality: npt.NDArray[np.float64]
    units: npt.NDArray[np.uint64]


class Canary(Wrapper):
    """inner: the control. other: the canary."""

    def __init__(self, inner: RoutingPolicy[Any], other: RoutingPolicy[Any], params: Params) -> None:
        super().__init__(inner)
        self._other = other
        self._params = params
        self._key = params.seed.to_bytes(8, "big")

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """Those of both."""
        return union(self.inner, self._other)

    @property
    def needed(self) -> tuple[Encoder, ...]:
        """Of both: the marginal probability needs the side that does not serve, too."""
        return distinct(needed(self.inner), needed(self._other))

    def empty(self) -> State:
        """What is known before anything is."""
        sums = np.zeros(2)
        return State(self.inner.empty(), self._other.empty(), np.zeros(2, np.int64), sums, sums, np.full(SLOTS, EMPTY))

    def canary(self, unit: str) -> bool:
        """Whether a unit is on the canary's side."""
        return unit != "" and (self._hash(unit, b"side") >> 11) / 2**53 < self._params.share

    def _hash(self, unit: str, purpose: bytes) -> int:
        # The policy's name makes the splits of two experiments independent of each other.
        text = f"{self._params.policy}\0{unit}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=self._key, person=purpose).digest(), "big")

    def estimate(self, state: State, situation: Situation) -> Scores:
        """What the policy of the unit's side thinks."""
        if self.canary(situation.unit):
            return self._other.estimate(state.other, situation)
        return self.inner.estimate(state.inner, situation)

    def propensities(self, state: State, situation: Situation, scores: Scores) -> Odds:
        """Those of the side, and the marginal ones over the sides; the other side is estimated, too."""
        if not situation.unit:
            return self.inner.propensities(state.inner, situation, scores)
        canary = self.canary(situation.unit)
        first = scores if not canary else self.inner.estimate(state.inner, situation)
        second = scores if canary else self._other.estimate(state.other, situation)
        control, other = self.inner.propensities(state.inner, situation, first), self._other.propensities(state.other, situation, second)
        marginal = mixed(normalised(control.marginal or control.drawn), normalised(other.marginal or other.drawn), self._params.share)
        side = other if canary else control
        return Odds(side.drawn, marginal, control.explores and other.explores, side.shadow)

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """Both sides learn from all; what came of each side is counted."""
        requests, weight, quality, units = state.requests.copy(), state.weight.copy(), state.quality.copy(), state.units.copy()
        for each in observations:
            side = int(self.canary(each.unit))
            requests[side] += each.count
            weight[side] += each.weight * each.count
            quality[side] += each.gain
            if each.unit and each.count > 0:
                mark = self._hash(each.unit, b"unit")
                slot = mark % SLOTS
                units[slot] = min(units[slot], np.uint64((mark >> 13 << 1) | side))
        inner, other = self.inner.fold(state.inner, observations), self._other.fold(state.other, observations)
        return State(inner, other, requests, weight, quality, units)

    def statistics(self, state: State) -> dict[str, Any]:
        """Of both sides; `sample_ratio` has the units counted, the evidence against the share, and whether it is an alarm."""
        counted = state.units[state.units != EMPTY]
        hits = int((counted & np.uint64(1)).sum())
        evidence = share_evidence(hits, len(counted), self._params.share)
        sides = {
            name: {
                "requests": int(state.requests[side]),
                "units": hits if side else len(counted) - hits,
                "quality": float(state.quality[side] / state.weight[side]) if state.weight[side] > 0 else None,
            }
            for side, name in enumerate(("control", "canary"))
        }
        ratio = {"units": len(counted), "expected": self._params.share, "log_evidence": evidence, "alarm": evidence >= ALARM}
        other = {"policy": self._params.policy, **self._other.statistics(state.other)}
        return {"inner": self.inner.statistics(state.inner), "other": other, **sides, "sample_ratio": ratio}

    def _own(self, found: Arrays, old: Sequence[str], new: Sequence[str]) -> dict[str, Any]:
        """The other policy's state is over the plans, too."""
        own = {name: array for name, array in found.items() if not name.startswith("other.")}
        return own | adapted(self._other, "other.", found, old, new)
