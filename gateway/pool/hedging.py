"""When a second replica is asked because the first one is slow (Dean, Barroso 2013, "The tail at scale").

A call is hedged once it has waited longer than most calls of its model and size had to: `quantile` of the last `_KEPT` waits of its size.
So few calls are, and of those only as many as `share` allows: each call earns that share of a hedge, and unspent earnings are capped, so
that a pause of all replicas is not answered by a wave of hedges.

Calls are of one size when they stream alike (a stream is waited for until its first event, a whole answer until its end) and their prompts,
and for whole answers the most that may be sampled, have the same power of two.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

_KEPT: Final = 256
"""Waits that are remembered of a size."""
_ENOUGH: Final = 64
"""Fewer waits tell nothing of a tail."""
_EACH: Final = 16
"""The quantile is worked out anew after so many waits."""
_SIZES: Final = 64
_UNSPENT: Final = 4.0

Size = tuple[bool, int, int]


def size_of(prompt_bytes: int, max_tokens: float | None, *, streams: bool) -> Size:
    """The size of a call. max_tokens: None: not bounded by the caller."""
    return streams, prompt_bytes.bit_length(), -1 if streams or max_tokens is None else int(max_tokens).bit_length()


class _Waits:
    """The last waits of one size, seconds, and their quantile."""

    __slots__ = ("_at", "_fresh", "_quantile", "_values", "delay_s")

    def __init__(self, quantile: float) -> None:
        self._quantile = quantile
        self._values: list[float] = []
        self._at = 0
        self._fresh = 0
        self.delay_s: float | None = None

    def add(self, wait_s: float) -> None:
        values = self._values
        if len(values) < _KEPT:
            values.append(wait_s)
        else:
            values[self._at] = wait_s
            self._at = (self._at + 1) % _KEPT
        self._fresh += 1
        if len(values) >= _ENOUGH and (self.delay_s is None or self._fresh >= _EACH):
            self._fresh = 0
            # The smallest wait that at least this share of all do not exceed.
            self.delay_s = sorted(values)[math.ceil(self._quantile * len(values)) - 1]


class Hedging:
    """The hedges of one model.

    share: of the calls, at most so many are hedged. quantile: of the waits, after which one is. least_s: never sooner.
    """

    def __init__(self, *, share: float, quantile: float = 0.95, least_s: float = 0.05) -> None:
        self._share = share
        self._quantile = quantile
        self._least_s = least_s
        self._waits: OrderedDict[Size, _Waits] = OrderedDict()
        self._earned = 0.0

    def begin(self, size: Size) -> float | None:
        """A call begins. After how long it may be hedged, seconds; None: too little is known of its size."""
        self._earned = min(_UNSPENT, self._earned + self._share)
        waits = self._waits.get(size)
        if waits is None or waits.delay_s is None:
            return None
        return max(self._least_s, waits.delay_s)

    @property
    def affordable(self) -> bool:
        """Whether a hedge may be made now."""
        return self._earned >= 1.0 - 1e-9  # what lies below a whole hedge by a rounding error is one

    def spend(self) -> bool:
        """Makes one, if it may be made now; whether it was."""
        if not self.affordable:
            return False
        self._earned -= 1.0
        return True

    def waited(self, size: Size, wait_s: float) -> None:
        """How long a replica took. Of one that was given up, how long it had been waited for by then: at least that is known."""
        waits = self._waits.get(size)
        if waits is None:
            waits = self._waits[size] = _Waits(self._quantile)
            if len(self._waits) > _SIZES:
                self._waits.popitem(last=False)
        else:
            self._waits.move_to_end(size)
        waits.add(wait_s)
