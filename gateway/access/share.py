"""One process's share of a limit that several share: what it has drawn, and what it has to tell the database of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gateway.access.ledger import LAPSE_S, PLACE_S, Drawn, Line
from gateway.access.limit import Limit
from gateway.access.meters import Meter, Step

AGAIN_S: Final = PLACE_S / 3
"""Places among what runs are said again so often."""


class Part(Step):
    """What one request took of a shared limit. own: the step of this process's own counter. number: the second in which it was drawn."""

    __slots__ = ("drawn", "own")

    def __init__(self, second: int, own: Step, *, drawn: bool) -> None:
        super().__init__(second)
        self.own = own
        self.drawn = drawn


class Share:
    """This process's share of one limit. As a meter it tells of the whole limit, as it stood when last drawn from.

    own: what this process has used itself. soon: is told when the database should hear of it.
    """

    def __init__(self, limit: Limit, own: Meter, soon: Callable[[Share], None]) -> None:
        self.limit = limit
        self.own = own
        self.in_places = limit.kind == "concurrency"
        self._soon = soon
        self._running = 0
        self._owed = 0
        self._back: dict[int, int] = {}
        # What was drawn beyond what was needed: where, and until when it may be used.
        self._at_hand = 0
        self._second = 0
        self._lapses_at = -math.inf
        self._asked_at = -math.inf
        self._said_at = -math.inf
        # What the last draw told.
        self._left = limit.most
        self._reset_at = -math.inf

    # -- meter

    def used(self, now: float) -> int:
        """See Meter."""
        return self._owed if now >= self._reset_at else max(0, self.limit.most - self._left - self._at_hand) + self._owed

    def add(self, amount: int, now: float) -> Step:
        """See Meter: used without a draw. The database hears of it afterwards."""
        if self.in_places:
            self._running += amount
        else:
            self._owed += amount
        self._soon(self)
        return Part(0, self.own.add(amount, now), drawn=False)

    def take(self, amount: int, most: int, now: float) -> Step | None:  # noqa: ARG002
        """See Meter: of what was drawn already."""
        return self.spend(amount, now) if self.has(amount, now) else None

    def give_back(self, step: Step, amount: int) -> None:
        """See Meter."""
        assert isinstance(step, Part)
        if not amount:
            return
        self.own.give_back(step.own, amount)
        if self.in_places:
            self._running -= amount
            self._at_hand += amount if step.drawn else 0
        elif step.drawn:
            self._back[step.number] = self._back.get(step.number, 0) + amount
        else:
            self._owed -= min(amount, self._owed)  # what the database has heard of stays used
        self._soon(self)

    def wait_s(self, amount: int, most: int, now: float) -> float:
        """See Meter; as far as this process itself has used it."""
        return self.own.wait_s(amount, most, now)

    def reset_s(self, now: float) -> float:
        """See Meter."""
        return max(0.0, self._reset_at - now)

    def idle(self, now: float) -> bool:
        """See Meter."""
        return not (self._running or self._at_hand or self._owed or self._back) and now >= self._reset_at and self.own.idle(now)

    # -- what is at hand

    def has(self, amount: int, now: float) -> bool:
        """Whether so much is at hand."""
        return self._at_hand >= amount and (self.in_places or now < self._lapses_at)

    def spend(self, amount: int, now: float) -> Part:
        """Takes it from there."""
        self._at_hand -= amount
        return self.lend(amount, self._second, now)

    def lend(self, amount: int, second: int, now: float) -> Part:
        """Takes what was drawn for a request in that second."""
        if self.in_places:
            self._running += amount
        return Part(second, self.own.add(amount, now), drawn=True)

    # -- rounds

    def due(self, now: float) -> bool:
        """Whether the database has to hear of it, though nobody asks: what lapses is given back, places are said again."""
        return now >= self._said_at + AGAIN_S if self.in_places else self._at_hand > 0 and now >= self._lapses_at

    @property
    def lives(self) -> bool:
        """Whether it will be due."""
        return self._at_hand > 0 or (self.in_places and self._running > 0)

    def line(self, now: float, *, asked: bool) -> Line:
        """What this process says of it; nothing is at hand until the answer comes."""
        back, self._back = self._back, {}
        if self._at_hand and not self.in_places:
            back[self._second] = back.get(self._second, 0) + self._at_hand
        self._at_hand = 0
        owed, self._owed = self._owed, 0
        quick = asked and now - self._asked_at < LAPSE_S
        if asked:
            self._asked_at = now
        return Line(self.limit.subject, self.limit.kind, self.limit.most, self._running, owed, back, quick)

    def drawn(self, drawn: Drawn, now: float) -> None:
        """The answer to a line that was said at `now`."""
        self._at_hand += drawn.spare
        self._second = drawn.second
        self._lapses_at = now + LAPSE_S
        self._said_at = now
        self._left = drawn.left
        self._reset_at = now + drawn.reset_s

    def unsaid(self, line: Line) -> None:
        """Nobody may have heard the line. What it gives back stays used, for if somebody did, it would be given back twice."""
        self._owed += line.owed
