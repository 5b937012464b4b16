"""Which rules can never match: proved over every kind of request that the signals can tell apart.

Each dimension of a request (its tokens, its language, a tag, whether a keyword occurs) takes finitely many values that matter; a world is
one choice of a value in each. A signal is the set of worlds in which it holds, as the bits of one integer, and so is a condition:

    rule i is dead   <=>   W(i) \\ (W(1) u ... u W(i-1)) is empty          rules in the order in which they are tried
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from policies.conditions.boolean import Condition, holds, names
from policies.conditions.signal import FLAGS, RANGES, Signal

MOST = 2**20
"""Worlds that are looked at; where there would be more, rules are compared two by two."""


class Numbered(NamedTuple):
    """A rule as it is analysed. label: how it is named in a sentence. serves: what it decides, to be compared."""

    label: str
    condition: Condition
    serves: Hashable


class _Atom(NamedTuple):
    """A test of one dimension. values: some of its values, all sides of the test among them."""

    dimension: Hashable
    values: frozenset[Any]
    accepts: Callable[[Any], bool]


def findings(rules: Sequence[Numbered], signals: Mapping[str, Signal]) -> list[str]:
    """Conflicts and dead rules among rules in the order in which they are tried, as sentences; every name in them is a signal's."""
    tables = _tables(rules, signals)
    if tables is not None:
        return _dead(rules, *tables)
    found = []
    for index, rule in enumerate(rules):
        for group in ([rule], *([earlier, rule] for earlier in rules[:index])):
            few = _tables(group, signals)
            said = [each for each in _dead(group, *few) if each.startswith(f"{rule.label} ")] if few else []
            if said:
                found += said
                break
    return found


def _dead(rules: Sequence[Numbered], tables: Sequence[int], full: int) -> list[str]:
    found = []
    covered = 0
    for index, (rule, table) in enumerate(zip(rules, tables, strict=True)):
        if not table:
            found.append(f"{rule.label} can never match: its condition contradicts itself")
        elif not table & ~covered:
            earlier = next((each for each in range(index) if not table & ~tables[each]), None)
            found.append(_why(rule, table, full, None if earlier is None else rules[earlier], 0 if earlier is None else tables[earlier]))
        covered |= table
    return found


def _why(rule: Numbered, table: int, full: int, earlier: Numbered | None, before: int) -> str:
    if earlier is None:
        return f"{rule.label} can never match: whenever it would, one of those before it matches first"
    if before == table and earlier.serves == rule.serves:
        return f"{rule.label} says again what {earlier.label} says"
    if before == table:
        return f"{rule.label} and {earlier.label} contradict each other: the same condition leads to different plans"
    if before == full:
        return f"{rule.label} can never match: it comes after {earlier.label}, which always matches"
    return f"{rule.label} can never match: whenever it would, {earlier.label} matches first"


def _tables(rules: Sequence[Numbered], signals: Mapping[str, Signal]) -> tuple[list[int], int] | None:
    """The worlds in which each rule's condition holds, and all worlds; None: there are too many."""
    used = sorted({name for rule in rules for name in names(rule.condition)})
    atoms = {name: _atoms(signals[name]) for name in used}
    flat = [atom for each in atoms.values() for atom in each]
    # Values of one dimension that no test tells apart are one.
    ways = {
        dimension: sorted(
            {
                tuple(atom.accepts(value) for atom in flat if atom.dimension == dimension)
                for value in frozenset().union(*(atom.values for atom in flat if atom.dimension == dimension))
            }
        )
        for dimension in dict.fromkeys(atom.dimension for atom in flat)
    }
    total = 1
    for each in ways.values():
        total *= len(each)
        if total > MOST:
            return None
    full = (1 << total) - 1
    stride = 1
    bits: dict[int, int] = {}
    for dimension, each in ways.items():
        for column, atom in enumerate(atom for atom in flat if atom.dimension == dimension):
            bits[id(atom)] = _pattern([way[column] for way in each], stride, total)
        stride *= len(each)
    facts = dict.fromkeys(used, full)
    for name in used:
        for atom in atoms[name]:
            facts[name] &= bits[id(atom)]
    return [holds(rule.condition, facts, full) for rule in rules], full


def _pattern(accepted: Sequence[bool], stride: int, total: int) -> int:
    """Bit w of `total` is set where accepted[(w // stride) % len(accepted)]."""
    run = (1 << stride) - 1
    bits = sum(run << (index * stride) for index, each in enumerate(accepted) if each)
    length = stride * len(accepted)
    while length < total:
        bits |= bits << length
        length *= 2
    return bits & ((1 << total) - 1)


def _atoms(signal: Signal) -> list[_Atom]:
    kind, value = signal.kind, getattr(signal, signal.kind)
    if kind in RANGES:
        limits = [limit for limit in (value.above, value.below) if limit is not None]
        near = {float(limit + step) for limit in limits for step in (-1, 0, 1) if limit + step >= 0}
        return [_Atom(kind, frozenset({*near, None} if kind == "max_tokens" else near), value.holds)]
    if kind in FLAGS:
        return [_Atom(kind, frozenset({True, False}), lambda flag: flag is value)]
    if kind == "tag":
        return [_choice(("tag", key), values) for key, values in signal.tags.items()]
    if kind == "tenant":
        return [_choice(kind, frozenset(value))]
    if kind == "language":
        return [_choice((kind, tuple(signal.roles or ())), frozenset(value))]
    if kind == "similar_to":
        threshold = signal.threshold
        question = repr(sorted(signal.measured.items()))
        return [_Atom(question, frozenset({threshold, 1.0}), lambda cosine: cosine > threshold)]
    return [_Atom(repr(sorted(signal.measured.items())), frozenset({0.0, 1.0}), lambda found: found > 0)]


def _choice(dimension: Hashable, accepted: frozenset[str]) -> _Atom:
    return _Atom(dimension, accepted | {None}, lambda value: value in accepted)
