"""A bounded queue in front of a model: priority classes, weighted fairness by tenant, a deadline on waiting.

`interactive` goes before `batch`, but while batch waits, every `batch_every`-th slot is batch's, so that nothing starves. Within a class
the slots are shared fairly between tenants (fair_queue.py).

The room is shared likewise, or one tenant's flood would shut the others out of it: when it is full, a call may take the place of the newest
call of the longest line. One place in `batch_every` (at least one of two or more) is batch's when it wants it, the others interactive's; a
class that has more than its places gives them up to the other one, and else a tenant to one with a shorter line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gateway.serving.fair_queue import FairQueue, Place

Priority = Literal["interactive", "batch"]

# How much of the mean time that a slot is held the newest call makes; and what is assumed before there was one, seconds.
_NEWEST: Final = 0.1
_ASSUMED_S: Final = 1.0


class NotAdmitted(Exception):
    """No slot for this call. retry_after_s: when the calls that wait now will likely have been served, at the pace of late."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(NotAdmitted):
    """There is no room to wait, or a call with a better claim has taken it."""


class QueueTimeout(NotAdmitted):
    """The wait took longer than the queue allows."""


class Slot:
    """Leave to run. Give it back with `release` when the call has ended; giving it back again changes nothing."""

    __slots__ = ("_admission", "_since")

    def __init__(self, admission: Admission, since: float) -> None:
        self._admission: Admission | None = admission
        self._since = since

    def release(self, *, used: bool = True) -> None:
        """The call has ended: the next one may start. used: it ran, so the time tells how long calls take."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission._give_back(self._since, used)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


_Turn = asyncio.Future[Slot]


@dataclass(slots=True)
class _Class:
    """places: its part of the room when all want it."""

    queue: FairQueue[_Turn]
    places: int = 0

    def next(self) -> bool:
        """Whether a call waits. Those at the head that have left, though their tasks have not yet run, are taken out."""
        while (head := self.queue.peek()) is not None:
            place, turn = head
            if not turn.done():
                return True
            self.queue.remove(place)
        return False


class Admission:
    """`slots` calls at once, `room` that wait, each at most `wait_s` seconds.

        with await admission.enter(tenant, "interactive"):
            ...

    now: a monotonic clock, seconds; waiting is timed by the event loop. weights: tenant -> share; 1 for others.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        slots: int,
        room: int,
        wait_s: float,
        weights: Mapping[str, float] | None = None,
        batch_every: int = 10,
    ) -> None:
        if batch_every < 2:
            raise ValueError("batch_every must be 2 or more")
        self._now = now
        self._batch_every = batch_every
        self._classes: dict[Priority, _Class] = {
            "interactive": _Class(FairQueue({})),
            "batch": _Class(FairQueue({})),
        }
        self._passed_over = 0  # slots given to interactive calls in a row while batch waits
        self._running = 0
        self._since = 0.0  # the sum of the times at which those that run began
        self._held_s: float | None = None
        self.resize(slots=slots, room=room, wait_s=wait_s, weights=weights or {})

    def resize(self, *, slots: int, room: int, wait_s: float, weights: Mapping[str, float]) -> None:
        """Other bounds from now on; calls that run or wait stay. Raises ValueError for less than 1 slot or 0 room, or a weight of 0."""
        if slots < 1 or room < 0:
            raise ValueError("an admission needs slots >= 1 and room >= 0")
        for each in self._classes.values():
            each.queue.reweigh(weights)
        self._slots = slots
        self._room = room
        self._wait_s = wait_s
        batch = max(1, room // self._batch_every) if room > 1 else 0
        self._classes["batch"].places = batch
        self._classes["interactive"].places = room - batch
        self._serve()

    @property
    def slots(self) -> int:
        """Calls that may run at once."""
        return self._slots

    @property
    def running(self) -> int:
        """How many hold a slot."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(len(each.queue) for each in self._classes.values())

    def retry_after_s(self, priority: Priority = "interactive") -> float:
        """When the calls that now wait before one of that class will likely have been served, at the pace of late."""
        own = len(self._classes[priority].queue)
        other = self.waiting - own
        if priority == "interactive":
            before = own + min(other, own // (self._batch_every - 1))
        else:
            before = own + min(other, (own + 1) * (self._batch_every - 1))
        return (before + 1) * self._hold_s() / self._slots

    def _hold_s(self) -> float:
        """How long a slot is held: as of late, but not less than those that run have had theirs by now."""
        by_now = self._now() - self._since / self._running if self._running else 0.0
        return max(_ASSUMED_S if self._held_s is None else self._held_s, by_now)

    async def enter(self, tenant: str, priority: Priority = "interactive") -> Slot:
        """Waits for a slot. Raises QueueFull, QueueTimeout. Cancelled at any moment, it holds neither slot nor place."""
        if self._running < self._slots:  # while a slot is free nobody waits
            return self._take()
        self._make_room(tenant, priority)
        loop = asyncio.get_running_loop()
        queue = self._classes[priority].queue
        turn: _Turn = loop.create_future()
        place = queue.push(tenant, turn)
        timer = loop.call_later(self._wait_s, self._expire, priority, place, turn)
        try:
            return await turn
        except BaseException:
            if not turn.done() or turn.cancelled():
                queue.remove(place)
            elif turn.exception() is None:
                turn.result().release(used=False)  # it was given just as the caller left
            raise
        finally:
            timer.cancel()

    def _make_room(self, tenant: str, priority: Priority) -> None:
        if self.waiting < self._room:
            return
        loser: Priority = priority
        if len(self._classes[priority].queue) < self._classes[priority].places:
            loser = "batch" if priority == "interactive" else "interactive"
        out = self._classes[loser].queue.shed(tenant if loser == priority else None)
        refusal = QueueFull("The queue is full.", self.retry_after_s(loser))
        if out is None:
            raise refusal
        if not out.done():
            out.set_exception(refusal)

    def _expire(self, priority: Priority, place: Place, turn: _Turn) -> None:
        if not turn.done():
            self._classes[priority].queue.remove(place)
            turn.set_exception(QueueTimeout("The wait in the queue took too long.", self.retry_after_s(priority)))

    def _take(self) -> Slot:
        now = self._now()
        self._running += 1
        self._since += now
        return Slot(self, now)

    def _give_back(self, since: float, used: bool) -> None:
        self._running -= 1
        self._since = self._since - since if self._running else 0.0
        if used:
            held = self._now() - since
            self._held_s = held if self._held_s is None else self._held_s + _NEWEST * (held - self._held_s)
        self._serve()

    def _serve(self) -> None:
        while self._running < self._slots and (turn := self._next()) is not None:
            turn.set_result(self._take())

    def _next(self) -> _Turn | None:
        interactive, batch = self._classes["interactive"], self._classes["batch"]
        batch_waits = batch.next()
        if interactive.next() and not (batch_waits and self._passed_over >= self._batch_every - 1):
            self._passed_over = self._passed_over + 1 if batch_waits else 0
            return interactive.queue.pop()
        self._passed_over = 0
        return batch.queue.pop()
