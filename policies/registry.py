"""Every routing policy, by the name it has in the configuration: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from policies.routing import fixed, weighted
from policies.values.plan import Plan


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A policy's parts: its parameters' type, a check of them, and the probabilities before the floor."""

    params: type[msgspec.Struct]
    problems: Callable[[Any, Sequence[str]], list[str]]
    propensities: Callable[[Any, Sequence[Plan]], tuple[float, ...]]


ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "fixed": Algorithm(fixed.Params, fixed.problems, fixed.propensities),
        "weighted": Algorithm(weighted.Params, weighted.problems, weighted.propensities),
    }
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A configured policy, ready to decide."""

    name: str
    algorithm: Algorithm
    params: msgspec.Struct
    floor: float
    seed: int

    def propensities(self, plans: Sequence[Plan]) -> tuple[float, ...]:
        """The probability of every plan, before the floor."""
        return self.algorithm.propensities(self.params, plans)


def policy(name: str, kind: str, params: Mapping[str, Any], floor: float, seed: int) -> Policy:
    """Builds a policy. Raises ValueError for an unknown kind or parameters that do not fit."""
    algorithm = ALGORITHMS.get(kind)
    if algorithm is None:
        raise ValueError(f"unknown policy type `{kind}`; there are: {', '.join(ALGORITHMS)}")
    try:
        parsed = msgspec.convert(dict(params), algorithm.params)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    return Policy(name, algorithm, parsed, floor, seed)


def problems(kind: str, params: Mapping[str, Any], plans: Sequence[str]) -> list[str]:
    """What of a policy's configuration cannot work, as sentences; empty when all is well."""
    try:
        built = policy("", kind, params, 0.0, 0)
    except ValueError as error:
        return [str(error)]
    return built.algorithm.problems(built.params, plans)
