"""The verifier as one who says how good an answer was: see serving/verifying.py for what it is asked."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.schema import Verifier as Settings
from gateway.learning.findings import Case
from gateway.learning.reviewing import Unjudged
from gateway.pool.transport import Transport
from gateway.serving.verifying import Unverified, verdict


class Verifier:
    """settings: those in use; None: there is none any more."""

    def __init__(self, transport: Transport, settings: Callable[[], Settings | None]) -> None:
        self._transport = transport
        self._settings = settings

    async def review(self, case: Case) -> float:
        """See reviewing.Review."""
        settings = self._settings()
        if settings is None:
            raise Unjudged("gone", weighs=False)
        try:
            value = await verdict(self._transport, settings, case.decision_id, case.messages, case.answer)
        except Unverified as error:
            raise Unjudged(str(error)) from None
        if value is None:
            raise Unjudged("silent", weighs=False)
        return value
