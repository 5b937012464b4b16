"""Where conversations stand: which plan ran their last turn. A bounded memory of this process.

standings = Standings()
standing, unit = standings.of(key, before, now)     before a decision
standings.note(key, plan, tokens, unit, now)        when its request has ended
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from policies.values.situation import Standing


class _Known(msgspec.Struct, frozen=True, gc=False):
    plan: str
    at: float
    tokens: int
    switches: int
    unit: str


class Standings:
    """most: conversations that are remembered; those longest silent are forgotten first. clock: seconds, never back."""

    def __init__(self, most: int = 100_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._most = most
        self._clock = clock

    def of(self, key: str | None) -> tuple[Standing, str] | None:
        """Where the conversation under that key stands, and the unit that it was put in; None: nothing is known of it."""
        known = self._known.get(key) if key is not None else None
        if known is None:
            return None
        return Standing(known.plan, self._clock() - known.at, known.tokens, known.switches), known.unit

    def note(self, key: str, plan: str, tokens: int, unit: str, before: Standing | None) -> None:
        """A turn has been served. before: where the conversation stood."""
        switches = 0 if before is None else before.switches + (before.plan != plan)
        self._known[key] = _Known(plan, self._clock(), tokens, switches, unit)
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
