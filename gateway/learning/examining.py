"""All that finds out by itself how good answers were, put together: signals, the verifier and the judge.

examining = Examining(put, transport, state, worked)
examining.ended(receipt)           at the end of each request
await examining.run()              until it is cancelled, with all that runs then
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from gateway.learning.findings import Findings, Put
from gateway.learning.judge import Judge, Worked
from gateway.learning.reviewing import Reviewing
from gateway.learning.signals import Signals
from gateway.learning.verifier import Verifier
from gateway.pool.transport import Transport
from gateway.serving.call import Receipt
from gateway.serving.hearing import JUDGE, VERIFIER
from gateway.serving.state import State


class Examining:
    """put: see Writer.put. state: in use. worked: told of calls that were made for it.

    findings: how many outcomes came of it, by source. signals, reviews: those who look, the latter by name, with what they could not do.
    """

    def __init__(self, put: Put, transport: Transport, state: Callable[[], State], worked: Worked) -> None:
        self.findings = Findings(put)

        def at_once(name: str) -> int:
            learning = state().config.learning
            settings = learning.judge if name == JUDGE else learning.verifier
            return 1 if settings is None else settings.at_once

        verifier = Verifier(transport, lambda: state().config.learning.verifier)
        judge = Judge(transport, state, self.findings, worked, Random())  # noqa: S311 - it spreads waits
        self.reviews = {
            VERIFIER: Reviewing(VERIFIER, verifier.review, self.findings, lambda: at_once(VERIFIER)),
            JUDGE: Reviewing(JUDGE, judge.review, self.findings, lambda: at_once(JUDGE)),
        }
        offers = {name: review.offer for name, review in self.reviews.items()}
        self.signals = Signals(self.findings, lambda: state().config.learning, offers)

    def ended(self, receipt: Receipt) -> None:
        """A request has ended."""
        self.signals.ended(receipt)

    async def run(self) -> None:
        """Looks at what comes, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.signals.run(), name="signals")
            for name, review in self.reviews.items():
                group.create_task(review.run(), name=name)
