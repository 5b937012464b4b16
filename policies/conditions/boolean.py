"""Boolean conditions over named signals, as nested mappings.

    code                                   the signal `code`
    {all: [a, b]}  {any: [a, b]}           all, any of these; of none: true, false
    {not: a}
    nothing at all                         always

A condition is evaluated on integers, bit by bit: one bit for a request, or one for each of many imagined ones, so that the same code that
decides also proves which rules can never match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

DEEPEST = 16
"""Levels of nesting."""


class Condition(NamedTuple):
    """operator: `signal` (then `name`), `all`, `any`, `not` (then `parts`)."""

    operator: str
    name: str = ""
    parts: tuple[Condition, ...] = ()


ALWAYS = Condition("all")


def parsed(raw: Any, depth: int = 0) -> Condition:
    """The condition that was written. Raises ValueError for what is none."""
    if raw is None and depth == 0:
        return ALWAYS
    if isinstance(raw, str):
        return Condition("signal", raw)
    if depth >= DEEPEST:
        raise ValueError(f"a condition is nested deeper than {DEEPEST} levels")
    if isinstance(raw, Mapping) and len(raw) == 1:
        ((operator, value),) = raw.items()
        if operator in {"all", "any"} and isinstance(value, Sequence) and not isinstance(value, str):
            return Condition(operator, parts=tuple(parsed(each, depth + 1) for each in value))
        if operator == "not":
            return Condition("not", parts=(parsed(value, depth + 1),))
    raise ValueError("a condition is the name of a signal, or one of `all: [..]`, `any: [..]`, `not: ..`")


def names(condition: Condition) -> Iterator[str]:
    """The signals that it names, as often as it does."""
    if condition.operator == "signal":
        yield condition.name
    for part in condition.parts:
        yield from names(part)


def holds(condition: Condition, facts: Mapping[str, int], full: int) -> int:
    """Where it holds. facts: where each signal does. full: all bits that there are. Raises KeyError for a signal that is not there."""
    operator, name, parts = condition
    if operator == "signal":
        return facts[name]
    if operator == "not":
        return full ^ holds(parts[0], facts, full)
    if operator == "all":
        found = full
        for part in parts:
            found &= holds(part, facts, full)
            if not found:
                break
        return found
    found = 0
    for part in parts:
        found |= holds(part, facts, full)
        if found == full:
            break
    return found
