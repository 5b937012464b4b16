"""When a worker that has ended is started again."""

from __future__ import annotations

from typing import Final

HEALTHY_S: Final = 10.0
"""A worker that served for so long has shown that it can."""

_FIRST_S: Final = 0.5
_MOST: Final = 5


class Restarts:
    """At once, then after pauses that double; never, when it has ended more than `most` times and none lived for `HEALTHY_S`."""

    def __init__(self, first_s: float = _FIRST_S, most: int = _MOST) -> None:
        self._first_s = first_s
        self._most = most
        self._ends = 0

    def after(self, served_s: float) -> float | None:
        """The pause, seconds, after one that served for so long; None: it is given up."""
        self._ends = 1 if served_s >= HEALTHY_S else self._ends + 1
        if self._ends > self._most:
            return None
        return 0.0 if self._ends == 1 else self._first_s * 2.0 ** (self._ends - 2)
