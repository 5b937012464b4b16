"""Signals: what an answer's own form tells of it, without asking anybody. Each is a pure function

    signal(wanted, said) -> 0 to 1, or None where it says nothing of such an answer

Whether one speaks depends on what was asked for and on what came, never on which plan served.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from policies.signals.refusal import refusal
from policies.signals.schema import schema
from policies.signals.tools import tools
from policies.signals.truncation import truncation
from policies.values.answer import Said, Wanted

Signal = Callable[[Wanted, Said], float | None]

SIGNALS: Final[Mapping[str, Signal]] = MappingProxyType({"schema": schema, "tools": tools, "truncation": truncation, "refusal": refusal})
"""By the name that they have as sources of outcomes."""


def signals(names: Collection[str], wanted: Wanted, answer: Sequence[Said]) -> dict[str, float]:
    """What each of these signals says of an answer: the mean over the choices of which it says something."""
    found: dict[str, float] = {}
    for name in names:
        values = [value for said in answer if (value := SIGNALS[name](wanted, said)) is not None]
        if values:
            found[name] = sum(values) / len(values)
    return found
