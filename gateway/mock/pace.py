"""When each token of an answer is due."""

from __future__ import annotations

import asyncio

from gateway.mock.behaviour import Behaviour


class Pace:
    """Of one answer, from now on. `uncached` prompt tokens are computed first; what the behaviour leaves open is as in the default."""

    def __init__(self, behaviour: Behaviour, default: Behaviour, uncached: int) -> None:
        prefill = _given(behaviour.prefill_tokens_per_second, default.prefill_tokens_per_second)
        self._first = _given(behaviour.first_token_delay_s, default.first_token_delay_s) + (uncached / prefill if prefill else 0.0)
        self._rate = _given(behaviour.tokens_per_second, default.tokens_per_second)
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    def due(self, step: int) -> float:
        """Seconds from the start to the step (from 0)."""
        return self._first + (step / self._rate if self._rate else 0.0)

    async def until(self, step: int) -> None:
        """Waits until the step is due; at least one turn of the loop, so that a client's leaving is heard."""
        await asyncio.sleep(max(0.0, self._start + self.due(step) - self._loop.time()))


def _given(value: float | None, default: float | None) -> float:
    return value if value is not None else default or 0.0
