"""Numbers that are counted on the way of a request: plain floats in cells, found once and then only added to.

One thread writes, the event loop's, so there is no lock. What other threads count they keep themselves, and it is read from there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec

from gateway.telemetry.families import FAMILIES, Family, Merge

Labels = tuple[str, ...]


class Bins(msgspec.Struct, frozen=True):
    """A histogram at a moment. counts: by bin, not cumulated, the last without upper end. total: the sum of all values."""

    counts: tuple[int, ...]
    total: float


Value = float | Bins
Snapshot = Mapping[str, Mapping[Labels, Value]]
"""Numbers at a moment: family -> labels -> value. Nobody changes it."""


class Cell:
    """A counter of one set of labels."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Histogram:
    """A histogram of one set of labels. A value that is a bound counts below it, as Prometheus has it."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """One value more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def bins(self) -> Bins:
        """As it is now."""
        return Bins(tuple(self._counts), self._total)


class Numbers:
    """The cells of all counters and histograms. A cell is made when it is first asked for; keep it to add to it."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, Cell]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def counter(self, family: Family, *labels: str) -> Cell:
        """The cell of a counter."""
        cells = self._counters.setdefault(family.name, {})
        cell = cells.get(labels)
        if cell is None:
            cell = cells[labels] = Cell()
        return cell

    def histogram(self, family: Family, *labels: str) -> Histogram:
        """The cell of a histogram."""
        cells = self._histograms.setdefault(family.name, {})
        cell = cells.get(labels)
        if cell is None:
            cell = cells[labels] = Histogram(family.bounds)
        return cell

    def forget(self, family: Family, labels: Iterable[Labels]) -> None:
        """Ends these series of a family; who still holds a cell adds to nothing."""
        for cells in (self._counters.get(family.name, {}), self._histograms.get(family.name, {})):
            for each in labels:
                cells.pop(each, None)

    def labels(self, family: Family) -> tuple[Labels, ...]:
        """The series of a family."""
        return (*self._counters.get(family.name, ()), *self._histograms.get(family.name, ()))

    def snapshot(self) -> dict[str, dict[Labels, Value]]:
        """All numbers as they are now; the caller's to add to."""
        found: dict[str, dict[Labels, Value]] = {
            name: {labels: cell.value for labels, cell in cells.items()} for name, cells in self._counters.items()
        }
        for name, histograms in self._histograms.items():
            found[name] = {labels: histogram.bins() for labels, histogram in histograms.items()}
        return found


def merged(snapshots: Iterable[Snapshot]) -> dict[str, dict[Labels, Value]]:
    """Several processes' numbers as one: counters and histograms are added up, gauges as their family says."""
    out: dict[str, dict[Labels, Value]] = {}
    for snapshot in snapshots:
        for name, values in snapshot.items():
            merge = FAMILIES[name].merge
            into = out.setdefault(name, {})
            for labels, value in values.items():
                held = into.get(labels)
                into[labels] = value if held is None else _together(held, value, merge)
    return out


def lasting(snapshot: Snapshot) -> dict[str, dict[Labels, Value]]:
    """What remains of a process that has ended: its counters and histograms."""
    return {name: dict(values) for name, values in snapshot.items() if FAMILIES[name].kind in ("counter", "histogram")}


def _together(one: Value, other: Value, merge: Merge) -> Value:
    if isinstance(one, Bins) or isinstance(other, Bins):
        assert isinstance(one, Bins) and isinstance(other, Bins), "a family has one kind"
        return Bins(tuple(a + b for a, b in zip(one.counts, other.counts, strict=True)), one.total + other.total)
    if merge == "sum":
        return one + other
    return max(one, other) if merge == "max" else min(one, other)
