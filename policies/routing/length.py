"""By the length of the prompt alone: long ones go to the strong plan. The threshold router of RouteLLM (arXiv 2406.18665), by length.

    n = characters of the user's messages (`user_chars`, the first number of the block `shape-1`)
    thresholds t_1 < ... < t_(K-1):     plan k, where k = number of t_i <= n              plans from weak (0) to strong (K - 1)
    strong_share s:                     the strongest where F(n) >= 1 - s, else plan floor((K - 1) F(n) / (1 - s))
    F: share of calls that were shorter, from a decayed histogram of log(1 + n), 16 bins to a factor of e

So s is the share of calls that the strongest gets, as well as lengths tell them apart, and the others share the rest evenly. Only calls
with an outcome are counted (each for those like it that have none), and 20 imagined ones with them, their logarithms even between 32 and
16,384 characters. Where a plan is not eligible, the next stronger one serves, else the next weaker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from models.encoders.shape import user_chars
from policies import decay
from policies.policy import Encoder, Kit
from policies.routing.base import unknown
from policies.states import Arrays
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.plan import Plan
from policies.values.situation import Situation

if TYPE_CHECKING:
    import numpy.typing as npt

BINS = 256
PER_E = 16
IMAGINED = 20.0


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """plans: from weak to strong; by default as they are configured. thresholds: in characters, one fewer than plans; or strong_share: by
    default 0.5. half_life_s: after which a call's length counts half."""

    plans: list[str] = []
    thresholds: list[float] = []
    strong_share: float | None = None
    half_life_s: float = 30 * 86_400.0


@dataclass(frozen=True)
class State:
    """calls: (BINS,), decayed number of calls by log(1 + characters). landmark: seconds since 1970."""

    calls: npt.NDArray[np.float64]
    landmark: float


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    found = decay.problems(params.half_life_s)
    found += [f"`plans` names `{name}`, which is not among the plans" for name in params.plans if name not in plans]
    if len(set(params.plans)) < len(params.plans):
        found.append("`plans` names a plan twice")
    number = len(params.plans or plans)
    if params.thresholds and params.strong_share is not None:
        found.append("either `thresholds` or `strong_share` decides, not both")
    if params.thresholds and len(params.thresholds) != number - 1:
        found.append(f"{number} plans need {number - 1} `thresholds`, not {len(params.thresholds)}")
    if any(not before < after for before, after in zip(params.thresholds, params.thresholds[1:], strict=False)):
        found.append("`thresholds` must rise")
    if params.strong_share is not None and not 0 <= params.strong_share <= 1:
        found.append("`strong_share` must lie between 0 and 1")
    return found


def build(params: Params, plans: Sequence[Plan], kit: Kit) -> Length:
    """The policy. Raises ValueError where the encoder `shape` cannot be had."""
    return Length(params, params.plans or [plan.name for plan in plans], kit.encoder("shape"))


class Length:
    """plans: names from weak to strong. encoder: `shape`."""

    def __init__(self, params: Params, plans: Sequence[str], encoder: Encoder) -> None:
        self._params = params
        self._plans = tuple(plans)
        self.encoders = (encoder,)
        low, high = int(PER_E * log1p(32)), int(PER_E * log1p(16_384))
        self._imagined = np.zeros(BINS)
        self._imagined[low:high] = IMAGINED / (high - low)

    def empty(self) -> State:
        """No call was counted."""
        return State(np.zeros(BINS), 0.0)

    def estimate(self, _state: State, situation: Situation) -> Scores:
        """Nothing is known of quality."""
        return unknown(situation)

    def propensities(self, state: State, situation: Situation, _scores: Scores) -> Odds:
        """One-hot at the plan for prompts of this length."""
        wanted = self._band(state, situation)
        ranked = sorted(range(len(self._plans)), key=lambda band: (band < wanted, abs(band - wanted)))
        eligible = [each.plan.name for each in situation.candidates]
        served = next((self._plans[band] for band in ranked if self._plans[band] in eligible), eligible[0])
        return Odds(tuple(1.0 if name == served else 0.0 for name in eligible))

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """Counts their lengths."""
        name, half_life = self.encoders[0].name, self._params.half_life_s
        counted = [each for each in observations if each.count and name in each.blocks]
        if not counted:
            return state
        landmark, halvings = decay.moved(state.landmark, max(each.at for each in counted), half_life)
        calls = np.ldexp(state.calls, halvings)
        for each in counted:
            at = min(BINS - 1, int(_position(user_chars(each.blocks[name]))))
            calls[at] += each.count * each.weight * decay.weight(each.at, landmark, half_life)
        return State(calls, landmark)

    def adapted(self, found: Arrays, _old: Sequence[str], _new: Sequence[str]) -> dict[str, Any]:
        """Lengths are of calls, whatever the plans are."""
        return dict(found)

    def statistics(self, state: State) -> dict[str, Any]:
        """Quantiles of the lengths, in characters, the imagined calls among them."""
        rising = np.cumsum(self._calls(state))
        return {
            f"p{quantile}": float(np.expm1((int(np.searchsorted(rising, rising[-1] * quantile / 100)) + 0.5) / PER_E))
            for quantile in (10, 50, 90)
        }

    def _band(self, state: State, situation: Situation) -> int:
        block = situation.blocks.get(self.encoders[0].name)
        characters = 0.0 if block is None else user_chars(block)
        strongest = len(self._plans) - 1
        if self._params.thresholds:
            return bisect_right(self._params.thresholds, characters)
        share = 0.5 if self._params.strong_share is None else self._params.strong_share
        shorter = _shorter(self._calls(state), characters)
        return strongest if shorter >= 1.0 - share else int(strongest * shorter / (1.0 - share))

    def _calls(self, state: State) -> npt.NDArray[np.float64]:
        return np.maximum(0.0, state.calls) + self._imagined


def _position(characters: float) -> float:
    """Where a length stands in the histogram, in bins."""
    return min(BINS - 1e-9, PER_E * log1p(characters))


def _shorter(calls: npt.NDArray[np.float64], characters: float) -> float:
    """F: the share of calls that were shorter, less than 1; even within a bin."""
    position = _position(characters)
    whole = int(position)
    below = float(calls[:whole].sum()) + (position - whole) * float(calls[whole])
    return min(below / float(calls.sum()), 1.0 - 1e-9)
