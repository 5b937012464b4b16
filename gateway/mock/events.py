"""Server-sent events of the mock, framed, split, commented and cut as the behaviour says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.mock.behaviour import Behaviour
from gateway.mock.connection import Answer
from gateway.mock.recorder import Received

DONE = b"[DONE]"


class Events:
    """Writes SSE payloads to an answer whose head has been sent."""

    def __init__(self, answer: Answer, request: Received, behaviour: Behaviour) -> None:
        self._answer = answer
        self._request = request
        self._behaviour = behaviour
        self._end = behaviour.line_end.encode()
        self._comments = b"".join(line.encode() + self._end for line in behaviour.comment_lines)
        cuts = (behaviour.reset_after_events, behaviour.close_after_events, behaviour.stall_after_events)
        self._cuts = {cut for cut in cuts if cut is not None}
        self._ready: list[bytes] = []

    async def step(self, payloads: Sequence[bytes]) -> None:
        """Writes the events of one step: together, or as `split` says."""
        for payload in payloads:
            self._ready.append(self._frame(payload))
            self._request.events_sent += 1
            if self._request.events_sent in self._cuts:
                await self._flush()
                await self._answer.checkpoint(self._request.events_sent)
            elif self._behaviour.split == "event" and payload != DONE:
                await self._flush()
                await asyncio.sleep(0)
        if self._behaviour.split != "all":
            await self._flush()

    async def end(self) -> None:
        """Writes [DONE] unless the script leaves it out, then ends the body."""
        if not self._behaviour.end_without_done:
            await self.step([DONE])
        await self._flush()
        await self._answer.end()

    async def _flush(self) -> None:
        if self._ready:
            parts, self._ready = self._ready, []
            await self._answer.write(*([b"".join(parts)] if self._behaviour.split == "all" else parts))

    def _frame(self, payload: bytes) -> bytes:
        lines = [payload]
        if self._behaviour.multi_line_data and (cut := payload.find(b',"') + 1):
            lines = [payload[:cut], payload[cut:]]
        return self._comments + b"".join(b"data: " + line + self._end for line in lines) + self._end
