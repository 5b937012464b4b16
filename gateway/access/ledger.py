"""Limits that several processes share, as the database keeps them (table `leases`).

    requests, tokens    a row for each second, process and limit: what the process drew in it. It counts until nothing that was drawn then
                        can have been used within the last minute: a second for the row's own length, a minute, and LAPSE_S, for so long
                        may pass between the draw and the use.
    concurrency         a row for each process and limit: the places that it has. They are its own for PLACE_S, unless it says so again.

`draw` is one transaction, with nobody else at these limits.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gateway.access.limit import Kind
from gateway.access.link import Session
from gateway.access.meters import MINUTE_S, PAUSE_S

LAPSE_S: Final = 1.0
"""What was drawn is used within so long, or given back."""

PLACE_S: Final = 30.0
"""Places among what runs are a dead process's for at most so long."""

COUNTS_S: Final = 1.0 + MINUTE_S + LAPSE_S
"""From the second in which something was drawn until it counts no more."""

SPARE: Final = 32
"""A process may draw one part in so many of what is left beyond what it needs, to be quick with the next request; so never of the last."""

_OLD_ROWS: Final = 1_000
_FORGETTING: Final = -1

_ROW: Final = (
    'INSERT INTO leases (subject, kind, "window", holder, amount, expires) VALUES (?, ?, ?, ?, ?, ?)'
    ' ON CONFLICT (subject, kind, "window", holder) DO UPDATE SET expires = excluded.expires, amount = '
)
_ADD: Final = _ROW + "leases.amount + excluded.amount"
_SET: Final = _ROW + "excluded.amount"


class Line(NamedTuple):
    """What a process says of one limit.

    held: the places that it has, of a limit to what runs at once. owed: what was used without a draw. back: what is given back, by the
    second in which it was drawn. spare: it would like some more than it asks for.
    """

    subject: str
    kind: Kind
    most: int
    held: int
    owed: int
    back: Mapping[int, int]
    spare: bool


Asked = Sequence[tuple[int, int]]
"""What one request needs: (number of a line, amount), all or nothing."""


class Drawn(NamedTuple):
    """What became of a line. second: in which it was drawn. left: of the limit, for anybody. reset_s: until all of it is left."""

    second: int
    spare: int
    left: int
    reset_s: float


class Refused(NamedTuple):
    """Which of a request's needs there was too little for, how much of that limit was used, and how long until there is enough."""

    need: int
    used: int
    wait_s: float


class Round(NamedTuple):
    """What a draw came to: for each line; for each request, None if it got what it needs."""

    lines: Sequence[Drawn]
    refused: Sequence[Refused | None]


def draw(session: Session, holder: str, lines: Sequence[Line], asked: Sequence[Asked]) -> Round:
    """Settles what the lines say, and gives the requests what they ask for, in order, as far as there is enough."""
    session.alone([_number(line) for line in lines])
    now = session.now()
    accounts = [(_Places if line.kind == "concurrency" else _Rate)(session, holder, now, line) for line in lines]
    refused = [_refused(accounts, each) for each in asked]
    return Round([account.written() for account in accounts], refused)


def forget(session: Session) -> None:
    """Deletes rows that count no more."""
    session.alone([_FORGETTING])
    session.run(
        'DELETE FROM leases WHERE (subject, kind, "window", holder) IN'
        ' (SELECT subject, kind, "window", holder FROM leases WHERE expires <= ? ORDER BY expires LIMIT ?)',
        session.now(),
        _OLD_ROWS,
    )


def _refused(accounts: Sequence[_Account], asked: Asked) -> Refused | None:
    """Why a request gets nothing; None: it has got what it asks for."""
    waits = [accounts[number].wait_s(amount) for number, amount in asked]
    wait_s = max(waits)
    if wait_s > 0:
        which = waits.index(wait_s)
        return Refused(which, accounts[asked[which][0]].used, wait_s)
    for number, amount in asked:
        accounts[number].give(amount)
    return None


def _number(line: Line) -> int:
    return zlib.crc32(f"{line.kind} {line.subject}".encode()) - 2**31


class _Account(ABC):
    """A limit while it is drawn from. used: of the limit, by everybody."""

    def __init__(self, session: Session, holder: str, now: float, line: Line) -> None:
        self._session = session
        self._holder = holder
        self._now = now
        self._line = line
        self._drawn = 0
        self.used = 0

    def give(self, amount: int) -> None:
        """Draws so much."""
        self._drawn += amount
        self.used += amount

    @abstractmethod
    def wait_s(self, amount: int) -> float:
        """How long until there is so much: 0 if there is."""

    @abstractmethod
    def written(self) -> Drawn:
        """Says in the database what was drawn."""

    def _spare(self) -> int:
        spare = max(0, self._line.most - self.used) // SPARE if self._line.spare else 0
        self.give(spare)
        return spare

    def _put(self, sql: str, second: int, amount: int, expires: float) -> None:
        self._session.run(sql, self._line.subject, self._line.kind, second, self._holder, float(amount), expires)


class _Rate(_Account):
    """Of a minute."""

    def __init__(self, session: Session, holder: str, now: float, line: Line) -> None:
        super().__init__(session, holder, now, line)
        for second, amount in line.back.items():
            if second + COUNTS_S > now:
                session.run(
                    'UPDATE leases SET amount = amount - ? WHERE subject = ? AND kind = ? AND "window" = ? AND holder = ?',
                    float(amount),
                    line.subject,
                    line.kind,
                    second,
                    holder,
                )
        found = session.rows(
            'SELECT "window", SUM(amount) FROM leases WHERE subject = ? AND kind = ? AND expires > ? GROUP BY "window" ORDER BY "window"',
            line.subject,
            line.kind,
            now,
        )
        self._seconds = [(int(second), int(amount)) for second, amount in found if amount > 0]
        self.used = sum(amount for _, amount in self._seconds)
        self.give(line.owed)

    def wait_s(self, amount: int) -> float:
        """See _Account."""
        if amount > self._line.most:
            return math.inf
        over = self.used + amount - self._line.most
        if over <= 0:
            return 0.0
        for second, freed in self._seconds:
            over -= freed
            if over <= 0:
                return second + COUNTS_S - self._now
        return COUNTS_S  # what was drawn just now stands in the way

    def written(self) -> Drawn:
        """See _Account."""
        spare = self._spare()
        second = int(self._now)
        if self._drawn:
            self._put(_ADD, second, self._drawn, second + COUNTS_S)
        newest = second if self._drawn else max((second for second, _ in self._seconds), default=None)
        reset_s = 0.0 if newest is None else newest + COUNTS_S - self._now
        return Drawn(second, spare, max(0, self._line.most - self.used), reset_s)


class _Places(_Account):
    """Of what runs at once. What this process has is said anew each time, so nothing that went wrong before stays."""

    def __init__(self, session: Session, holder: str, now: float, line: Line) -> None:
        super().__init__(session, holder, now, line)
        ((others,),) = session.rows(
            "SELECT COALESCE(SUM(amount), 0) FROM leases WHERE subject = ? AND kind = ? AND holder <> ? AND expires > ?",
            line.subject,
            line.kind,
            holder,
            now,
        )
        self.used = int(others) + line.held

    def wait_s(self, amount: int) -> float:
        """See _Account."""
        return 0.0 if self.used + amount <= self._line.most else PAUSE_S

    def written(self) -> Drawn:
        """See _Account."""
        spare = self._spare()
        has = self._line.held + self._drawn
        if has:
            self._put(_SET, 0, has, self._now + PLACE_S)
        else:
            self._session.run(
                "DELETE FROM leases WHERE subject = ? AND kind = ? AND holder = ?", self._line.subject, self._line.kind, self._holder
            )
        return Drawn(0, spare, max(0, self._line.most - self.used), 0.0)
