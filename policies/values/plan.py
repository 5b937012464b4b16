"""A plan: one way to run a request; a candidate: a plan that could run this one, with what that is expected to take."""

from __future__ import annotations

from typing import Literal

import msgspec

from models.response import Response

Reasoning = Literal["off", "low", "medium", "high"]


class Plan(msgspec.Struct, frozen=True, gc=False):
    """name: as configured. model: a real model's name. reasoning: how much it thinks; None: as the model does by itself. strategy: how it
    is decoded. budget_tokens: most that it may sample. response: what the strategy makes of the model's quality; None: no curve is known.
    """

    name: str
    model: str
    strategy: str = "single"
    reasoning: Reasoning | None = None
    budget_tokens: int | None = None
    response: Response | None = None


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A plan that may run this request. index: among all plans of the virtual model. cost: expected, USD. latency: expected, seconds."""

    plan: Plan
    index: int
    cost: float = 0.0
    latency: float = 0.0
