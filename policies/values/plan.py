"""A plan: one way to run a request."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, frozen=True, gc=False):
    """name: as configured. model: a real model's name. strategy: how it is decoded."""

    name: str
    model: str
    strategy: str = "single"


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Which plan was drawn (an index into the candidates), and with which probability."""

    chosen: int
    propensity: float
    probabilities: tuple[float, ...]
    explored: bool
