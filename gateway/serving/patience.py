"""How long a request may wait: a bound on each wait, and one deadline over all.

One timer per request, re-armed lazily: noting that bytes came costs an attribute, not a timer call.
"""

from __future__ import annotations

import asyncio
import math
from typing import Literal

from gateway.pool.transport import TimedOut

Bound = Literal["wait", "total"]


class DeadlinePassed(Exception):
    """The request's own deadline, not a backend's time-out."""


class Patience:
    """Cancels its task when a wait passes a bound, and turns that cancellation into `TimedOut` or `DeadlinePassed`.

    Make it in the task that waits; another task that goes on waiting with it calls `adopt`.

    deadline: loop time after which nothing of the request may run. since: loop time at which the last wait began.

        with patience.within(idle_s):
            data = await upstream.read_some()
    """

    __slots__ = ("_briefest", "_call_ends", "_due", "_expired", "_limit", "_loop", "_task", "_timer", "_waits", "deadline", "since")

    def __init__(self, deadline: float = math.inf) -> None:
        self._loop = asyncio.get_running_loop()
        self.deadline = deadline
        self._call_ends = math.inf
        self._briefest = math.inf
        self._limit = 0.0
        self.since = 0.0
        self.adopt()
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._expired: Bound | None = None

    def adopt(self) -> None:
        """From now on it is the current task that waits."""
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[object] = task

    def now(self) -> float:
        """The loop's time, seconds."""
        return self._loop.time()

    def again(self) -> None:
        """What was waited for has come, and is waited for again."""
        self.since = self._loop.time()

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self._loop.time()

    def bound(self, deadline: float) -> None:
        """Deadlines only ever come nearer."""
        self.deadline = min(self.deadline, deadline)

    def begin_call(self, total_s: float, briefest_s: float = math.inf) -> None:
        """A call to a backend begins, and must have ended after so long: waits for it end then, as timed out.

        briefest_s: of the bounds that its waits will have. The timer is set for that, and not anew for each wait.
        """
        self._call_ends = self._loop.time() + total_s
        self._briefest = briefest_s

    @property
    def call_is_over(self) -> bool:
        """Whether the call has had its time."""
        return self._loop.time() >= self._call_ends

    def within(self, seconds: float) -> Patience:
        """Bounds the wait that follows, which does not begin when the deadline has passed (`DeadlinePassed`)."""
        self._limit = seconds
        return self

    def __enter__(self) -> None:
        self.since = now = self._loop.time()
        if now >= self.deadline:
            raise DeadlinePassed
        if now >= self._call_ends:
            raise TimedOut("the call to the backend took too long")
        self._waits = True
        due = min(now + self._limit, self.deadline, self._call_ends)
        if self._timer is None or self._due > due:
            self._arm(min(due, now + self._briefest))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._waits = False
        if self._expired is not None:
            expired, self._expired = self._expired, None
            # Another error, or somebody else's cancellation beside ours, goes on.
            if self._task.uncancel() == 0 and isinstance(error, asyncio.CancelledError):
                if expired == "total":
                    raise DeadlinePassed from None
                raise TimedOut("the backend did not answer in time") from None

    def close(self) -> None:
        """Stops the timer, and forgets the call; call it at the end of each."""
        self._call_ends = self._briefest = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Kept here: uvloop's handle of a timer that is due at once does not tell.
        self._due = due
        if due < math.inf:  # a timer for ever would never be forgotten
            self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        if not self._waits:
            return  # nobody waits; the next wait arms it again
        due = min(self.since + self._limit, self.deadline, self._call_ends)
        if now < due:
            self._arm(due)
            return
        self._expired = "total" if self.deadline <= now else "wait"
        self._task.cancel()
