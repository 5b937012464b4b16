"""How many tokens per second each pool samples, over the last half minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from gateway.telemetry.numbers import Cell

WINDOW_S: Final = 30.0


class Pace:
    """Tokens by pool. `of` gives the cell to add to; `tick`, about once a second, remembers where all cells stand."""

    def __init__(self, now: float) -> None:
        self._cells: dict[str, Cell] = {}
        self._marks: deque[tuple[float, Mapping[str, float]]] = deque([(now, {})])

    def of(self, pool: str) -> Cell:
        """The cell of a pool's tokens."""
        cell = self._cells.get(pool)
        if cell is None:
            cell = self._cells[pool] = Cell()
        return cell

    def keep(self, pools: frozenset[str]) -> None:
        """Only these pools are there from now on."""
        self._cells = {pool: cell for pool, cell in self._cells.items() if pool in pools}

    def tick(self, now: float) -> None:
        """A second has passed. now: a monotonic clock, seconds."""
        self._marks.append((now, {pool: cell.value for pool, cell in self._cells.items()}))
        while len(self._marks) > 1 and self._marks[1][0] <= now - WINDOW_S:
            self._marks.popleft()

    def per_second(self, now: float) -> Mapping[str, float]:
        """Pool -> tokens per second since the oldest mark."""
        since, held = self._marks[0]
        span_s = max(now - since, 1.0)
        # A pool that was gone for a while has begun again from 0.
        return {pool: max(0.0, cell.value - held.get(pool, 0.0)) / span_s for pool, cell in self._cells.items()}
