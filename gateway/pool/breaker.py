"""A circuit breaker per backend (Nygard 2007), fed by the backend's own faults only.

    closed --trip--> open --deadline passes--> half-open --the trial succeeds--> closed
                       ^------- the trial fails ---'

A fault is a failed connection, a reset, a time-out, a 5xx, or a 429 with its Retry-After; what a caller got wrong (400, 404, 413, 422) says
nothing of the backend. A failed connection, a 429 and a Retry-After trip at once, other faults when `trip_after` come in a row or when
they are `trip_share` of the last `window` calls. Each failed trial doubles the pause; a backend that names its own (Retry-After) gets that
instead.

Deadlines are only ever extended. Of calls begun before a trip only a 429 or a Retry-After still counts, for it is the backend's word of
now: their successes do not close the breaker, and their time-outs do not keep a backend out that has come back.

A probe's word stands beside this, for it costs no caller anything: while probes cannot connect, no call goes there, early or late, and none
is spent on a trial; when one can, all is as the calls had left it, but that a trip for want of a connection is over once its pause is.
Probes end no pause of the calls' or the backend's own. A word holds until the next one, or until that is overdue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from gateway.pool.window import Window

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

    trip_after: faults in a row. trip_share, window, min_calls: the share of faults among the last `window` calls, if at least `min_calls`
    are known. first_s, longest_s: the pause after the first trip, and at most. longest_asked_s: the longest pause that a backend may ask
    for. now: a monotonic clock, seconds. on_trip: called at each trip that a probe may tell more of.
    """

    __slots__ = (
        "_asked_until",
        "_dark",
        "_dark_until",
        "_faults",
        "_first_s",
        "_heard",
        "_longest_asked_s",
        "_longest_s",
        "_min_calls",
        "_now",
        "_open_until",
        "_ticket",
        "_trial",
        "_trip_after",
        "_trip_share",
        "_trips",
        "_unconnected",
        "_well",
        "_window",
        "on_trip",
    )

    def __init__(
        self,
        now: Callable[[], float],
        *,
        trip_after: int = 3,
        trip_share: float = 0.5,
        window: int = 20,
        min_calls: int = 10,
        first_s: float = 1.0,
        longest_s: float = 30.0,
        longest_asked_s: float = 3_600.0,
    ) -> None:
        self._now = now
        self._trip_after = trip_after
        self._trip_share = trip_share
        self._min_calls = min_calls
        self._first_s = first_s
        self._longest_s = longest_s
        self._longest_asked_s = longest_asked_s
        self.on_trip: Callable[[], None] | None = None
        self._faults = 0
        self._window = Window(window)
        self._trips = 0
        self._open_until = -math.inf
        self._asked_until = -math.inf
        # All calls between two trips share a ticket, so that those begun before the last one are known.
        self._ticket = Ticket()
        self._trial: Ticket | None = None
        # Of probes: until when their word holds (or is waited for), whether it is that there is no connection, and whether a call has
        # succeeded since the last one set out.
        self._dark_until = -math.inf
        self._dark = False
        self._heard = False
        self._unconnected = False  # the last trip was for want of a connection
        self._well = True  # no trip, no probe's word: what nearly every call finds

    @property
    def state(self) -> State:
        """closed: in use. open: cooling, or probes cannot connect. half_open: the next call, or the one under way, decides."""
        if self._well:
            return "closed"
        now = self._now()
        if now < self._dark_until:
            return "open"
        if self._trips == 0:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    @property
    def wait_s(self) -> float:
        """Seconds until the deadline; 0 when it has passed, also while a trial decides."""
        return 0.0 if self._well else max(0.0, max(self._open_until, self._dark_until) - self._now())

    @property
    def asked(self) -> bool:
        """Whether the pause is one that the backend asked for: then nothing goes there early."""
        return self._now() < self._asked_until

    def admits(self, *, early: bool = False) -> bool:
        """Whether a call may go there now: any when closed, one at a time when half-open.

        early: also when open, as the trial, but not where the last probe could not connect.
        """
        if self._well:
            return True
        now = self._now()
        if now < self._dark_until and (self._dark or not early):
            return False
        return self._trips == 0 or (self._trial is None and (early or now >= self._open_until))

    def begin(self, *, early: bool = False) -> Ticket:
        """A call goes there. Raises RuntimeError unless `admits`.

        early: it was chosen a moment ago. If another became the trial since, it goes all the same, as one begun before the trip.
        """
        if self._trips == 0:
            return self._ticket
        if not early and not self.admits():
            raise RuntimeError("the breaker does not admit a call")
        if self._trial is not None:
            return Ticket()
        self._trial = Ticket(self._open_until)
        return self._trial

    def succeeded(self, ticket: Ticket) -> None:
        """The backend answered well.

        Tell it of a trial at its first byte, for others wait for it; of another call at its end, so that a backend trips that breaks off
        every stream. A trial that breaks off later is told of as any other call.
        """
        if self._trips == 0:
            if ticket is self._ticket:
                self._faults = 0
                self._heard = True
                if not self._window.steady:
                    self._window.add(False)
        elif ticket is self._trial:
            self._trial = None
            self._heard = True
            self._lift()
            # A deadline that was extended meanwhile is a newer word than this success.
            if ticket.until == self._open_until:
                self._close(ticket)

    def faulted(self, ticket: Ticket, fault: Fault, retry_after_s: float | None = None) -> None:
        """The backend failed. retry_after_s: how long it asked to be left alone."""
        if retry_after_s is not None and math.isnan(retry_after_s):
            retry_after_s = None
        if ticket is self._trial:
            self._trial = None
            self._trip(fault, retry_after_s)
        elif self._trips == 0 and ticket is self._ticket:
            self._faults += 1
            self._window.add(True)
            if (
                fault in _AT_ONCE
                or retry_after_s is not None
                or self._faults >= self._trip_after
                or self._window.reaches(self._trip_share, self._min_calls)
            ):
                self._trip(fault, retry_after_s)
        elif fault == "rate_limit" or retry_after_s is not None:
            self._trip(fault, retry_after_s, again=False)

    def abandoned(self, ticket: Ticket) -> None:
        """The call ended without a verdict (the caller left, or was at fault): another may try."""
        if ticket is self._trial:
            self._trial = None

    def probing(self, within_s: float) -> None:
        """A probe sets out, and will have connected or not in so many seconds.

        Until then the last one's word holds; and if the last trip was for want of a connection, a call that is not early waits for it.
        """
        self._heard = False
        now = self._now()
        self._dark = self._dark and now < self._dark_until
        if self._dark or self._unconnected:
            self._dark_until = max(self._dark_until, now + within_s)

    def reachable(self) -> None:
        """A probe has connected.

        Where that was all that was wrong, and the pause is over, there is nothing left for a call to try: one long answer as the trial
        would keep all others out.
        """
        if self._unconnected and self._now() >= self._open_until:
            self._trial = None
            self._close(Ticket())
        self._lift()

    def unreachable(self, within_s: float) -> None:
        """A probe could not connect. within_s: when the next one will have set out.

        Not believed if a call has succeeded since it set out: a busy backend may have no room for another connection.
        """
        if self._heard:
            return
        self._dark_until = self._now() + within_s
        self._dark = True
        self._well = False

    def _lift(self) -> None:
        self._dark_until = -math.inf
        self._dark = False
        self._well = self._trips == 0

    def _close(self, ticket: Ticket) -> None:
        self._trips = self._faults = 0
        self._window.clear()
        self._asked_until = -math.inf
        self._open_until = -math.inf
        self._unconnected = False
        self._well = True
        self._ticket = ticket

    def _trip(self, fault: Fault, asked_s: float | None, *, again: bool = True) -> None:
        if self._trips == 0:
            self._ticket = Ticket()
        if again or self._trips == 0:
            self._trips += 1
        self._well = False
        self._unconnected = fault == "connect"
        if asked_s is None:
            pause = min(self._longest_s, self._first_s * 2.0 ** min(self._trips - 1, _DOUBLINGS))
        else:
            pause = min(self._longest_asked_s, asked_s)
        until = self._now() + pause
        self._open_until = max(self._open_until, until)
        if asked_s is not None:
            self._asked_until = max(self._asked_until, until)
        if self.on_trip is not None and fault != "rate_limit":
            self.on_trip()
