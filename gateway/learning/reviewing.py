"""Whoever judges answers, one at a time or several: a bounded queue, so many at once, and a pause when nothing comes of it.

reviewing = Reviewing("verifier", review, findings, at_once)
reviewing.offer(case)              never waits
await reviewing.run()              until it is cancelled, with all that runs then
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.learning.findings import Case, Findings

log = logging.getLogger("trilemma.learning")

_WAITING: Final = 256
_BEARABLE: Final = 5
_FIRST_PAUSE_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 600.0


class Unjudged(Exception):
    """Nothing came of it. reason: a word of few. weighs: whether it speaks against who judges."""

    def __init__(self, reason: str, *, weighs: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.weighs = weighs


Review = Callable[[Case], Awaitable[float]]
"""The value, 0 to 1. Raises Unjudged."""


class Reviewing:
    """name: the outcomes' source. at_once: how many it does now. clock: seconds, never back.

    failures: by reason; `dropped`: there was no room, `paused`: after five failures in a row nothing is asked for half a minute, then for
    twice as long each time, up to ten minutes.
    """

    def __init__(
        self,
        name: str,
        review: Review,
        findings: Findings,
        at_once: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._review = review
        self._findings = findings
        self._at_once = at_once
        self._clock = clock
        self._queue: asyncio.Queue[Case] = asyncio.Queue(_WAITING)
        self._running = 0
        self._free = asyncio.Event()
        self._in_a_row = 0
        self._pause_s = _FIRST_PAUSE_S
        self._paused_until = float("-inf")
        self.failures: Counter[str] = Counter()

    def offer(self, case: Case) -> None:
        """Takes a case, if it can."""
        if self._clock() < self._paused_until:
            self.failures["paused"] += 1
        elif self._queue.full():
            self.failures["dropped"] += 1
        else:
            self._queue.put_nowait(case)

    @property
    def running(self) -> int:
        """Cases that are being judged."""
        return self._running

    async def run(self) -> None:
        """Judges what comes, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                case = await self._queue.get()
                while self._running >= self._at_once():
                    self._free.clear()
                    await self._free.wait()
                self._running += 1
                group.create_task(self._one(case), name=self._name)

    async def _one(self, case: Case) -> None:
        try:
            if self._clock() < self._paused_until:
                raise Unjudged("paused", weighs=False)
            value = await self._review(case)
        except Unjudged as unjudged:
            self._failed(unjudged)
        except Exception as error:
            # Its words stay out of the log: they may be those of an answer.
            log.error("%s: a fault of the gateway: %s", self._name, type(error).__name__, extra={"decision_id": case.decision_id})  # noqa: TRY400
            self._failed(Unjudged("fault"))
        else:
            self._worked()
            self._findings.add(case.decision_id, self._name, value, case.shares[self._name])
        finally:
            self._running -= 1
            self._free.set()

    def _failed(self, unjudged: Unjudged) -> None:
        self.failures[unjudged.reason] += 1
        if not unjudged.weighs:
            return
        self._in_a_row += 1
        if self._in_a_row >= _BEARABLE and self._clock() >= self._paused_until:
            log.warning("%s: %d failures in a row (%s); a pause of %g s", self._name, self._in_a_row, unjudged.reason, self._pause_s)
            self._paused_until = self._clock() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _worked(self) -> None:
        if self._in_a_row >= _BEARABLE:
            log.warning("%s: works again", self._name)
        self._in_a_row, self._pause_s = 0, _FIRST_PAUSE_S
