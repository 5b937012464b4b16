"""A circuit breaker per backend (Nygard 2007), fed by the backend's own faults only.

    closed --trip--> open --deadline passes--> half-open --the trial succeeds--> closed
                       ^------- the trial fails ---'

A fault is a failed connection, a reset, a time-out, a 5xx, or a 429 with its Retry-After; what a caller got wrong (400, 404, 413, 422) says
nothing of the backend. A failed connection, a 429 and a Retry-After trip at once, other faults when `trip_after` come in a row. Each failed
trial doubles the pause; a backend that names its own (Retry-After) gets that instead.

Deadlines are only ever extended. Of calls begun before a trip only a 429 or a Retry-After still counts, for it is the backend's word of
now: their successes do not close the breaker, and their time-outs do not keep a backend out that has come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Fault = Literal["connect", "reset", "timeout", "status", "rate_limit"]
State = Literal["closed", "open", "half_open"]

_AT_ONCE: Final = frozenset(("connect", "rate_limit"))
_DOUBLINGS: Final = 64


def fault_of(status: int) -> Fault | None:
    """What an answer's status says of the backend, once the adapter has found that the caller is not to blame; None: nothing.

    501 is none: it is how an engine says that it lacks an endpoint.
    """
    if status == 429:
        return "rate_limit"
    return "status" if 500 <= status < 600 and status != 501 else None


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A call's leave to go. until: the deadline that a trial set out to end; None when it is no trial."""

    until: float | None = None


class Breaker:
    """Told of each call: `begin`, then `succeeded` or `faulted`, or else `abandoned`, which after a verdict changes nothing.

    trip_after: faults in a row. first_s, longest_s: the pause after the first trip, and at most. longest_asked_s: the longest pause that a
    backend may ask for. now: a monotonic clock, seconds.
    """

    __slots__ = (
        "_asked_until",
        "_faults",
        "_first_s",
        "_longest_asked_s",
        "_longest_s",
        "_now",
        "_open_until",
        "_ticket",
        "_trial",
        "_trip_after",
        "_trips",
    )

    def __init__(
        self,
        now: Callable[[], float],
        *,
        trip_after: int = 3,
        first_s: float = 1.0,
        longest_s: float = 30.0,
        longest_asked_s: float = 3_600.0,
    ) -> None:
        self._now = now
        self._trip_after = trip_after
        self._first_s = first_s
        self._longest_s = longest_s
        self._longest_asked_s = longest_asked_s
        self._faults = 0
        self._trips = 0
        self._open_until = -math.inf
        self._asked_until = -math.inf
        # All calls between two trips share a ticket, so that those begun before the last one are known.
        self._ticket = Ticket()
        self._trial: Ticket | None = None

    @property
    def state(self) -> State:
        """closed: in use. open: cooling. half_open: the next call, or the one under way, decides."""
        if self._trips == 0:
            return "closed"
        return "open" if self._now() < self._open_until else "half_open"

    @property
    def wait_s(self) -> float:
        """Seconds until the deadline; 0 when it has passed, also while a trial decides."""
        return max(0.0, self._open_until - self._now()) if self._trips else 0.0

    @property
    def asked(self) -> bool:
        """Whether the pause is one that the backend asked for: then nothing goes there early."""
        return self._now() < self._asked_until

    def admits(self, *, early: bool = False) -> bool:
        """Whether a call may go there now: any when closed, one at a time when half-open. early: also when open, as the trial."""
        return self._trips == 0 or (self._trial is None and (early or self._now() >= self._open_until))

    def begin(self, *, early: bool = False) -> Ticket:
        """A call goes there. Raises RuntimeError unless `admits`."""
        if self._trips == 0:
            return self._ticket
        if not self.admits(early=early):
            raise RuntimeError("the breaker does not admit a call")
        self._trial = Ticket(self._open_until)
        return self._trial

    def succeeded(self, ticket: Ticket) -> None:
        """The backend answered well.

        Tell it of a trial at its first byte, for others wait for it; of another call at its end, so that a backend trips that breaks off
        every stream. A trial that breaks off later is told of as any other call.
        """
        if ticket is self._trial:
            self._trial = None
            # A deadline that was extended meanwhile is a newer word than this success.
            if ticket.until == self._open_until:
                self._trips = self._faults = 0
                self._asked_until = -math.inf
                self._open_until = -math.inf
                self._ticket = ticket
        elif self._trips == 0 and ticket is self._ticket:
            self._faults = 0

    def faulted(self, ticket: Ticket, fault: Fault, retry_after_s: float | None = None) -> None:
        """The backend failed. retry_after_s: how long it asked to be left alone."""
        if retry_after_s is not None and math.isnan(retry_after_s):
            retry_after_s = None
        if ticket is self._trial:
            self._trial = None
            self._trip(retry_after_s)
        elif self._trips == 0 and ticket is self._ticket:
            self._faults += 1
            if fault in _AT_ONCE or self._faults >= self._trip_after or retry_after_s is not None:
                self._trip(retry_after_s)
        elif fault == "rate_limit" or retry_after_s is not None:
            self._trip(retry_after_s, again=False)

    def abandoned(self, ticket: Ticket) -> None:
        """The call ended without a verdict (the caller left, or was at fault): another may try."""
        if ticket is self._trial:
            self._trial = None

    def _trip(self, asked_s: float | None, *, again: bool = True) -> None:
        if self._trips == 0:
            self._ticket = Ticket()
        if again or self._trips == 0:
            self._trips += 1
        if asked_s is None:
            pause = min(self._longest_s, self._first_s * 2.0 ** min(self._trips - 1, _DOUBLINGS))
        else:
            pause = min(self._longest_asked_s, asked_s)
        until = self._now() + pause
        self._open_until = max(self._open_until, until)
        if asked_s is not None:
            self._asked_until = max(self._asked_until, until)
