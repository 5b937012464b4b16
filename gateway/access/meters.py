"""What has been used of a limit, as this process counts.

    Minute     requests or tokens over a sliding minute: never more than the limit in any 60 seconds, wherever they begin
    Running    what runs at once

`now` is the reading of a clock that never goes back, seconds.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Protocol

MINUTE_S: Final = 60.0
STEP_S: Final = 0.25
"""The minute moves on in steps of this length, a power of two. What was used in a step counts until a minute after the step's end."""

PAUSE_S: Final = 1.0
"""When somebody who found no place among what runs may come again. It is a guess: nobody knows what ends when."""

_STEPS: Final = int(MINUTE_S / STEP_S) + 1


class Step:
    """What was used in one step of time."""

    __slots__ = ("amount", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.amount = 0


class Meter(Protocol):
    """How much of a limit is used."""

    def used(self, now: float) -> int:
        """What counts now."""
        ...

    def add(self, amount: int, now: float) -> Step:
        """Counts it from now on. The step is what `give_back` wants."""
        ...

    def take(self, amount: int, most: int, now: float) -> Step | None:
        """Counts it if it fits under `most`; None: it does not."""
        ...

    def give_back(self, step: Step, amount: int) -> None:
        """So much of what was added in that step is not used, or no more."""
        ...

    def wait_s(self, amount: int, most: int, now: float) -> float:
        """How long until so much fits under `most`: 0 if it does, infinite if it never will."""
        ...

    def reset_s(self, now: float) -> float:
        """How long until nothing counts any more, if nothing is added."""
        ...

    def idle(self, now: float) -> bool:
        """Whether it may be forgotten."""
        ...


class Minute:
    """An amount over a sliding minute. At most 241 numbers are kept, however much is used."""

    __slots__ = ("_forget_at", "_next_at", "_steps", "_used")

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()
        self._used = 0
        self._forget_at = math.inf
        self._next_at = -math.inf

    def used(self, now: float) -> int:
        """See Meter."""
        if now >= self._forget_at:
            steps = self._steps
            while steps and now >= _end(steps[0]):
                step = steps.popleft()
                self._used -= step.amount
                step.amount = 0
            self._forget_at = _end(steps[0]) if steps else math.inf
        return self._used

    def add(self, amount: int, now: float) -> Step:
        """See Meter."""
        if now >= self._next_at:
            self._begin(int(now / STEP_S))
        step = self._steps[-1]
        step.amount += amount
        self._used += amount
        return step

    def take(self, amount: int, most: int, now: float) -> Step | None:
        """See Meter."""
        if now >= self._forget_at:
            self.used(now)
        return self.add(amount, now) if self._used + amount <= most else None

    def give_back(self, step: Step, amount: int) -> None:
        """See Meter."""
        back = min(amount, step.amount)  # of a step that does not count any more, nothing is left
        step.amount -= back
        self._used -= back

    def wait_s(self, amount: int, most: int, now: float) -> float:
        """See Meter."""
        over = self.used(now) + amount - most
        if over <= 0:
            return 0.0
        for step in self._steps:
            over -= step.amount
            if over <= 0:
                return _end(step) - now
        return math.inf

    def reset_s(self, now: float) -> float:
        """See Meter."""
        self.used(now)
        for step in reversed(self._steps):
            if step.amount:
                return _end(step) - now
        return 0.0

    def idle(self, now: float) -> bool:
        """See Meter."""
        return not self.used(now)

    def _begin(self, number: int) -> None:
        step = Step(number)
        self._steps.append(step)
        self._next_at = (number + 1) * STEP_S
        if len(self._steps) == 1:
            self._forget_at = _end(step)


class Running:
    """What runs at once. Its step means nothing."""

    __slots__ = ("_running", "_step")

    def __init__(self) -> None:
        self._running = 0
        self._step = Step(0)

    def used(self, now: float) -> int:  # noqa: ARG002 (see Meter)
        """See Meter."""
        return self._running

    def add(self, amount: int, now: float) -> Step:  # noqa: ARG002
        """See Meter."""
        self._running += amount
        return self._step

    def take(self, amount: int, most: int, now: float) -> Step | None:
        """See Meter."""
        return self.add(amount, now) if self._running + amount <= most else None

    def give_back(self, step: Step, amount: int) -> None:  # noqa: ARG002
        """See Meter."""
        self._running -= amount

    def wait_s(self, amount: int, most: int, now: float) -> float:  # noqa: ARG002
        """See Meter."""
        return 0.0 if self._running + amount <= most else PAUSE_S

    def reset_s(self, now: float) -> float:  # noqa: ARG002
        """See Meter."""
        return PAUSE_S if self._running else 0.0

    def idle(self, now: float) -> bool:  # noqa: ARG002
        """See Meter."""
        return not self._running


def _end(step: Step) -> float:
    """When it counts no more."""
    return (step.number + _STEPS) * STEP_S
