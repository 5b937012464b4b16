"""What a policy decides on: the request's features, who could run it, what that costs, and where its session stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from policies.values.plan import Candidate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]


class Prices(msgspec.Struct, frozen=True, gc=False):
    """What is given up for quality: score = quality - cost * USD - latency * seconds.

    cost: quality per USD. latency: quality per second. parts: whose prices these are the sum of, by name, in the unit of `cost`
    (`latency`: of `latency`); told, never computed with.
    """

    cost: float = 0.0
    latency: float = 0.0
    parts: Mapping[str, float] = {}


class Standing(msgspec.Struct, frozen=True, gc=False):
    """Where a session stands. plan: that which ran its last turn. idle_s: since then. tokens: of that turn's prompt and answer, which the
    replica may have cached. switches: changes of plan so far."""

    plan: str
    idle_s: float
    tokens: int = 0
    switches: int = 0


class Situation(msgspec.Struct, frozen=True):
    """One request to be decided.

    candidates: eligible plans, at least one. blocks: features by the name of the encoder that made them. prices: of this request. standing:
    None: the first turn, or no session. unit: what stays together in an experiment: the session, else the tenant (a keyed hash). tool_loop:
    the answer to a tool's call is awaited. explore: whether it may be explored on. now: seconds since 1970. tenant, tags: as in Prompt.
    """

    candidates: Sequence[Candidate]
    blocks: Mapping[str, Vector] = {}
    prices: Prices = Prices()
    standing: Standing | None = None
    unit: str = ""
    tool_loop: bool = False
    explore: bool = True
    now: float = 0.0
    tenant: str = ""
