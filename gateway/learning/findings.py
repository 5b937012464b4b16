"""What the gateway finds out of answers by itself, on its way to the database: rows of `outcomes`, with which goes a row of `to_learn`.

Only numbers and names: what was asked and answered is forgotten.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gateway.learning.labels import METRIC
from gateway.store.writer import Row

Put = Callable[[str, Row], object]


class Case(NamedTuple):
    """An answer that somebody is to judge. messages: JSON, the conversation as it came. model: that answered; its public name. shares: of
    those who are to be asked, of how many decisions they are. received: when the request came, time.perf_counter(). calls: that it made."""

    decision_id: str
    messages: bytes
    answer: str
    model: str
    shares: Mapping[str, float]
    received: float
    calls: int


class Findings:
    """put: see Writer.put. now: seconds since 1970. found: outcomes so far, by source."""

    def __init__(self, put: Put, now: Callable[[], float] = time.time) -> None:
        self._put = put
        self._now = now
        self.found: Counter[str] = Counter()

    def add(self, decision_id: str, source: str, value: float, probability: float = 1.0) -> None:
        """value: 0 to 1. probability: that this source says something of such a decision."""
        self.found[source] += 1
        self._put("outcomes", (decision_id, METRIC, source, value, probability, self._now()))

    def calls(self, rows: Sequence[Row]) -> None:
        """Calls that were made to find it out: rows of that table."""
        for row in rows:
            self._put("calls", row)
