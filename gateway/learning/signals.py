"""Answers that have ended are looked at, off the requests' time: what their form tells of them, and who is to judge them.

signals = Signals(findings, learning, offers)
signals.ended(receipt)             at the end of each request; only takes note
await signals.run()                until it is cancelled: one batch after another, in a thread
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from gateway.config.schema import Learning
from gateway.learning.findings import Case, Findings
from gateway.serving.call import Examined, Receipt
from gateway.serving.verifying import LONGEST_PROMPT
from gateway.wire.answers import answer_of, text_of
from policies.signals import signals
from policies.values.answer import Wanted

log = logging.getLogger("trilemma.learning")

Offer = Callable[[Case], object]

_BATCH: Final = 16
_AT_THE_END_S: Final = 1.0


class _Ended(NamedTuple):
    """A request that has ended."""

    decision_id: str
    prompt: bytes
    answer: bytearray
    examined: Examined
    model: str
    received: float
    calls: int

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.prompt) + len(self.answer) + len(self.examined.response_format) + len(self.examined.tools)


class _Seen(NamedTuple):
    """values: by signal. case: what somebody is to judge; None: nobody is."""

    values: Mapping[str, float]
    case: Case | None


class Signals:
    """learning: the settings in use. offers: who judges answers, by name. most: answers that may wait, room: their bytes; more are not
    looked at. dropped: so many of these; unread: answers that were too long, or not to be read."""

    def __init__(
        self,
        findings: Findings,
        learning: Callable[[], Learning],
        offers: Mapping[str, Offer],
        *,
        most: int = 4_096,
        room: int = 64 << 20,
    ) -> None:
        self._findings = findings
        self._learning = learning
        self._offers = offers
        self._most = most
        self._room = room
        self._queue: deque[_Ended] = deque()
        self._held = 0
        self._wake = asyncio.Event()
        self.dropped = 0
        self.unread = 0

    def ended(self, receipt: Receipt) -> None:
        """A request has ended."""
        words = receipt.words
        if words is None or words.examined is None or words.answer is None or receipt.outcome != "ok" or receipt.principal is None:
            return
        ended = _Ended(
            receipt.decision_id,
            words.prompt if words.examined.judges else b"",
            words.answer,
            words.examined,
            receipt.served_model or "",
            receipt.received,
            len(receipt.calls),
        )
        if len(self._queue) >= self._most or self._held + ended.size > self._room:
            self.dropped += 1
            return
        self._held += ended.size
        self._queue.append(ended)
        self._wake.set()

    @property
    def waiting(self) -> int:
        """Answers that were not looked at yet."""
        return len(self._queue)

    async def run(self) -> None:
        """Looks at what comes, until it is cancelled; then for a second at most at what still waits."""
        try:
            while True:
                await self._wake.wait()
                batch = self._batch()
                self._took(batch, await asyncio.to_thread(looked_at, batch, self._names()))
        finally:
            until = time.monotonic() + _AT_THE_END_S
            while self._queue and time.monotonic() < until:
                batch = self._batch()
                self._took(batch, looked_at(batch, self._names()))

    def _names(self) -> Sequence[str]:
        return tuple(self._learning().signals)

    def _batch(self) -> list[_Ended]:
        """What is next. It stays in the queue until it has been looked at."""
        return [self._queue[at] for at in range(min(len(self._queue), _BATCH))]

    def _took(self, batch: Sequence[_Ended], seen: Sequence[_Seen | None]) -> None:
        for ended, each in zip(batch, seen, strict=True):
            self._queue.popleft()
            self._held -= ended.size
            self._tell(ended.decision_id, each)
        if not self._queue:
            self._wake.clear()

    def _tell(self, decision_id: str, seen: _Seen | None) -> None:
        if seen is None:
            self.unread += 1
            return
        for source, value in seen.values.items():
            self._findings.add(decision_id, source, value)
        if seen.case is not None:
            for name in seen.case.shares:
                self._offers[name](seen.case)


def looked_at(batch: Sequence[_Ended], names: Sequence[str]) -> list[_Seen | None]:
    """What is to be seen of each; None: it cannot be read."""
    found = []
    for each in batch:
        try:
            found.append(_seen(each, names))
        except Exception as error:
            # Its words stay out of the log.
            log.error("an answer cannot be looked at: %s", type(error).__name__, extra={"decision_id": each.decision_id})  # noqa: TRY400
            found.append(None)
        time.sleep(0)  # requests are served meanwhile
    return found


def _seen(ended: _Ended, names: Sequence[str]) -> _Seen | None:
    if len(ended.answer) > ended.examined.most:
        return None
    answer = answer_of(bytes(ended.answer))
    if answer is None:
        return None
    examined = ended.examined
    wanted = Wanted(_json(examined.response_format), _json(examined.tools), examined.limited)
    case = None
    text = text_of(answer)
    messages = _messages(ended.prompt) if examined.judges and text else None
    if messages is not None:
        case = Case(ended.decision_id, messages, text, ended.model, examined.judges, ended.received, ended.calls)
    return _Seen(signals(names, wanted, answer), case)


def _json(raw: bytes) -> Any:
    return msgspec.json.decode(raw) if raw else None


def _messages(prompt: bytes) -> bytes | None:
    """A conversation as JSON; a completion's prompt as the words of a user. None: it is too long, or no text."""
    if not prompt or len(prompt) > LONGEST_PROMPT:
        return None
    value = msgspec.json.decode(prompt)
    if isinstance(value, str):
        return orjson.dumps([{"role": "user", "content": value}])
    return prompt if isinstance(value, list) and value and all(isinstance(each, dict) for each in value) else None
