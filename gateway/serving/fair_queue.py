"""A queue that is fair between tenants: start-time fair queueing (Goyal, Vin, Cheng 1996), one unit of work per item.

    start(item) = max(v, finish(the tenant's last served)),   finish = start + 1 / weight(tenant),   v = start of the item served last

The tenant with the least start is next; within a tenant, first come, first served. A start is set when its item is at the head of its
tenant's line, not when it comes: for items that stay it is the same, and those that leave cost their tenant nothing. All costs are
O(log tenants), amortised; memory is bounded by the items and the tenants.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Place(NamedTuple):
    """Where an item stands."""

    tenant: str
    number: int


@dataclass(slots=True)
class _Line(Generic[T]):
    """A tenant's items.

    queued: it has an entry in the heap of starts. noted: the length that its valid entry in the heap of lengths tells; 0: it has none.
    """

    weight: float
    items: OrderedDict[int, T] = field(default_factory=OrderedDict)
    finish: float = 0.0
    queued: bool = False
    noted: int = 0


class FairQueue(Generic[T]):
    """weights: tenant -> share, above 0; 1 for others. Raises ValueError for a weight that is not."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._lines: dict[str, _Line[T]] = {}
        self._starts: list[tuple[float, int, str]] = []
        self._lengths: list[tuple[float, int, str]] = []
        self._numbers = count()
        self._virtual = 0.0
        self._items = 0
        self._tidy_at = 64
        self.reweigh(weights)

    def reweigh(self, weights: Mapping[str, float]) -> None:
        """Other weights from now on; who waits keeps the place it has. Raises ValueError for a weight that is not above 0."""
        if not all(0 < weight < float("inf") for weight in weights.values()):
            raise ValueError("a tenant's weight must be a number above 0")
        self._weights = weights
        for name, line in self._lines.items():
            line.weight = weights.get(name, 1.0)
        self._lengths = [(-each.noted / each.weight, next(self._numbers), name) for name, each in self._lines.items() if each.noted]
        heapq.heapify(self._lengths)

    def __len__(self) -> int:
        return self._items

    def push(self, tenant: str, item: T) -> Place:
        """The item waits from now on."""
        line = self._lines.get(tenant)
        if line is None:
            if len(self._lines) >= self._tidy_at:
                self._tidy()
            line = self._lines[tenant] = _Line(self._weights.get(tenant, 1.0))
        number = next(self._numbers)
        line.items[number] = item
        self._items += 1
        if not line.queued:
            line.queued = True
            heapq.heappush(self._starts, (max(self._virtual, line.finish), number, tenant))
        if len(line.items) > line.noted:
            self._note(tenant, line)
        return Place(tenant, number)

    def peek(self) -> tuple[Place, T] | None:
        """The item that is next."""
        while self._starts:
            tenant = self._starts[0][2]
            line = self._lines[tenant]
            if line.items:
                number = next(iter(line.items))
                return Place(tenant, number), line.items[number]
            heapq.heappop(self._starts)  # all its items have left
            line.queued = False
        return None

    def pop(self) -> T | None:
        """Takes the item that is next out, as served."""
        if self.peek() is None:
            return None
        start, _, tenant = self._starts[0]
        line = self._lines[tenant]
        item = line.items.popitem(last=False)[1]
        self._virtual = start
        line.finish = start + 1.0 / line.weight
        line.queued = bool(line.items)
        if line.queued:
            heapq.heapreplace(self._starts, (line.finish, next(self._numbers), tenant))
        else:
            heapq.heappop(self._starts)
        self._left()
        return item

    def remove(self, place: Place) -> None:
        """Takes an item out, as never there. One that is not there is no matter."""
        line = self._lines.get(place.tenant)
        if line is not None and place.number in line.items:
            del line.items[place.number]
            self._left()

    def shed(self, tenant: str | None = None) -> T | None:
        """Takes the newest item of the longest line (per weight) out, as never there; None if no line is longer than the tenant's would be.

        tenant: who wants to push an item; None: that does not matter.
        """
        longest = self._longest()
        if longest is None:
            return None
        if tenant is not None:
            own = self._lines.get(tenant)
            length = len(own.items) + 1 if own is not None else 1
            if length / self._weights.get(tenant, 1.0) >= len(longest.items) / longest.weight:
                return None
        item = longest.items.popitem()[1]
        self._left()
        return item

    def _left(self) -> None:
        self._items -= 1
        if not self._items:  # nobody waits: what was owed is void
            self._lines.clear()
            self._starts.clear()
            self._lengths.clear()
            self._virtual = 0.0

    def _longest(self) -> _Line[T] | None:
        """The longest line per weight. An entry tells a line's length or, until it has come up, one that it had since."""
        while self._lengths:
            noted, number, tenant = self._lengths[0]
            line = self._lines.get(tenant)
            if line is None or -noted != line.noted / line.weight:
                heapq.heappop(self._lengths)  # there is a newer one
            elif line.noted == len(line.items):
                return line
            else:
                line.noted = len(line.items)
                if line.noted:
                    heapq.heapreplace(self._lengths, (-line.noted / line.weight, number, tenant))
                else:
                    heapq.heappop(self._lengths)
        return None

    def _note(self, tenant: str, line: _Line[T]) -> None:
        line.noted = len(line.items)
        heapq.heappush(self._lengths, (-line.noted / line.weight, next(self._numbers), tenant))
        if len(self._lengths) > 2 * len(self._lines) + 64:
            for each in self._lines.values():
                each.noted = len(each.items)
            self._lengths = [(-each.noted / each.weight, next(self._numbers), name) for name, each in self._lines.items() if each.noted]
            heapq.heapify(self._lengths)

    def _tidy(self) -> None:
        """Forgets tenants that wait for nothing and owe nothing."""
        for line in self._lines.values():
            line.queued = bool(line.items)
        self._starts = [entry for entry in self._starts if self._lines[entry[2]].items]
        heapq.heapify(self._starts)
        self._lines = {name: line for name, line in self._lines.items() if line.items or line.finish > self._virtual}
        self._tidy_at = 2 * len(self._lines) + 64
