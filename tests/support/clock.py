"""A loop whose clock a test moves: it never sleeps, and jumps to the next timer when all tasks wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ClockLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and stands still while anything is ready to run."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        poll = self._selector.select

        def select(timeout: float | None = None) -> Any:
            found = poll(0)
            if timeout is None and not found:
                raise AssertionError("every task waits, and no timer is set")
            if not found:
                self._now += timeout or 0.0
            return found

        self._selector.select = select  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now

    def timers(self) -> list[float]:
        """When the timers that are set are due."""
        return sorted(handle.when() for handle in self._scheduled if not handle.cancelled())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs to the end on such a loop."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        return runner.run(main)


def timers() -> list[float]:
    """See ClockLoop.timers, of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    return loop.timers()


class Clock:
    """Seconds that a test moves by hand, for what asks a function for the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
