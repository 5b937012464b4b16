"""How late the event loop is: a timer that should fire ten times a second, and when it does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

from gateway.telemetry.numbers import Histogram

_EVERY_S: Final = 0.1
_LOOK_BACK_S: Final = 10.0


class LoopLag:
    """Measures the running loop from `start` to `stop`. delays: is told of each tick. now: a clock, seconds."""

    def __init__(self, delays: Histogram, now: Callable[[], float] = perf_counter) -> None:
        self._delays = delays
        self._now = now
        self._late: deque[tuple[float, float]] = deque()
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self) -> None:
        """Begins; the loop runs already."""
        self._again(asyncio.get_running_loop())

    def stop(self) -> None:
        """Ends."""
        if self._handle is not None:
            self._handle.cancel()

    @property
    def most_s(self) -> float:
        """The most of late; what is late now and has not ended counts too."""
        now = self._now()
        ended = max((late for at, late in self._late if at >= now - _LOOK_BACK_S), default=0.0)
        return max(ended, now - self._due) if self._handle is not None else ended

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop's clock: uvloop's stands still while a callback runs.
        self._due = self._now() + _EVERY_S
        self._handle = loop.call_later(_EVERY_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._now()
        late = max(0.0, now - self._due)
        self._late.append((now, late))
        while self._late[0][0] < now - _LOOK_BACK_S:
            self._late.popleft()
        self._delays.observe(late)
        self._again(loop)
