"""How long rows are kept. What is older goes in small batches, so that nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from gateway.store.columns import DECISION, first_id

Expire = Callable[[str, str, int], int]
"""(table, id, most) -> how many rows of decisions with a lesser id were deleted, at most so many."""

_DAY_S = 86_400.0


class Retention:
    """keep_days: table -> days; a table that is not named is kept for ever. every_s: how often it is looked for what is too old.

    What belongs to a decision goes with it, so nothing is kept for longer than `decisions`.
    """

    def __init__(
        self, keep_days: Mapping[str, float], *, batch: int = 1_000, every_s: float = 60.0, clock: Callable[[], float] = time.time
    ) -> None:
        longest = keep_days.get("decisions", float("inf"))
        days = {table: min(keep_days.get(table, longest), longest) for table in DECISION}
        self._keep_s = {table: kept * _DAY_S for table, kept in days.items() if kept != float("inf")}
        self._batch = batch
        self._every_s = every_s
        self._clock = clock
        self._due = float("-inf")

    def step(self, expire: Expire) -> None:
        """One batch of each table that holds what is too old, if it is time to look."""
        now = self._clock()
        if now < self._due:
            return
        gone = [expire(table, first_id(now - keep_s), self._batch) for table, keep_s in self._keep_s.items()]
        if max(gone, default=0) < self._batch:
            self._due = now + self._every_s
