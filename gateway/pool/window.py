"""How the last calls went: the share of faults among the last so many, in constant time and memory."""

from __future__ import annotations


class Window:
    """The outcomes of the last `size` calls. calls: how many are known, at most `size`; faults: how many of those were faults.

    steady: nothing but successes, as many as it holds: then another success changes nothing, and need not be told.
    """

    __slots__ = ("_at", "_ring", "_size", "calls", "faults", "steady")

    def __init__(self, size: int) -> None:
        self._size = size
        self.clear()

    def clear(self) -> None:
        """Nothing is known any more."""
        self._ring = bytearray(self._size)
        self._at = 0
        self.calls = 0
        self.faults = 0
        self.steady = False

    def add(self, fault: bool) -> None:
        """A call ended."""
        ring, at = self._ring, self._at
        # Where no call has been yet there is a 0.
        self.faults += fault - ring[at]
        ring[at] = fault
        self._at = at + 1 if at + 1 < self._size else 0
        if self.calls < self._size:
            self.calls += 1
        self.steady = not self.faults and self.calls == self._size

    def reaches(self, share: float, least: int) -> bool:
        """Whether at least this share of the calls were faults; False while fewer than `least` calls are known, or than it holds."""
        # A share of a whole number of calls may lie above it by a rounding error.
        return self.calls >= min(least, self._size) and self.faults >= share * self.calls - 1e-9
