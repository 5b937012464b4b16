"""What a policy chose for a request, and all that it was chosen from: it stands on the receipt, and is kept with the row."""

from __future__ import annotations

from typing import Any

import msgspec

from policies.values.plan import Plan, Reasoning
from policies.values.situation import Prices, Standing


class Excluded(msgspec.Struct, frozen=True, gc=False):
    """plan: its name. reason: see eligible.py."""

    plan: str
    reason: str


class Snapshot(msgspec.Struct, frozen=True):
    """What a policy has learnt so far. version: counts the folds; 0: nothing was learnt yet."""

    version: int
    state: Any


class Weighed(msgspec.Struct, frozen=True, array_like=True):
    """A candidate as it was weighed. probability: marginal. quality to score: the policy's, if it has any. cost, latency: expected."""

    plan: str
    probability: float
    quality: float | None
    low: float | None
    high: float | None
    score: float | None
    cost: float
    latency: float


class Decided(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a decision was made from, but the features; kept with the row, so that it can be made again.

    fallback: why no policy decided, and the baseline serves. standing: where the conversation stood. now: seconds since 1970.
    """

    candidates: tuple[Weighed, ...]
    prices: Prices
    excluded: tuple[Excluded, ...] = ()
    standing: Standing | None = None
    tool_loop: bool = False
    explore: bool = True
    now: float = 0.0
    shadow: dict[str, str] = {}
    fallback: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """What of a decision stands beside `Decided` on a receipt.

    features: the blocks one after the other, float32, little-endian; feature_version: their names and sizes. key: under which the
    conversation is remembered. most: tokens that the plan may sample; longest: that the answer may have, the request's own word counted.
    reasoning: how much it is to think. took_s: deciding, seconds. model: the plan's, by its public name; another may stand in for it.
    """

    decided: Decided
    plan: Plan
    snapshot: int | None = None
    feature_version: str | None = None
    features: bytes | None = None
    unit: str = ""
    first_turn: bool = True
    key: str | None = None
    most: int | None = None
    longest: int | None = None
    reasoning: Reasoning | None = None
    took_s: float = 0.0
    model: str | None = None
