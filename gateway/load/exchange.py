"""One request on the wire: its answer read as it comes, every event noted at its time."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from typing import Any, Final

import httptools
import orjson

from gateway.load.outcome import Record
from gateway.wire.sse import DONE, EventSplitter, EventTooLarge, data_of

_LONGEST_EVENT: Final = 64 << 20
# More of a whole answer is counted, not kept.
_KEPT: Final = 4 << 20


class Exchange:
    """Fills the record; `over` is set when nothing more will come, or the caller has left.

    clock: seconds from the start of the load. gaps: where the seconds between two events of a stream go, 0 for events that came in one
    read.
    """

    __slots__ = ("_body", "_clock", "_events", "_gaps", "_kind", "_leave_after", "_parser", "keep", "over", "record")

    def __init__(
        self,
        record: Record,
        clock: Callable[[], float],
        gaps: array[float],
        over: asyncio.Future[None],
        leave_after_events: int | None = None,
    ) -> None:
        self.record = record
        self.over = over
        self.keep = False
        self._clock = clock
        self._gaps = gaps
        self._leave_after = leave_after_events
        self._events: EventSplitter | None = None
        self._body: list[bytes] = []
        self._kind = b""
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    # -- the connection

    def feed(self, data: bytes) -> None:
        """Bytes of the answer."""
        if self._parser is None:
            self.keep = False
            return
        self.record.size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, EventTooLarge) as error:
            self.end(f"no answer: {error}")

    def end(self, trouble: str = "") -> None:
        """Nothing more will come; `trouble` says why, if that is not as it should be."""
        if self._parser is None:
            return
        self._parser = None  # it holds on to us
        self.keep = self.keep and not trouble
        record = self.record
        record.trouble = trouble
        record.end = self._clock()
        if self._events is None:
            self._read_body()
        if not self.over.done():
            self.over.set_result(None)

    def leave(self) -> None:
        """The caller has enough."""
        if self._parser is not None:
            self.record.left = True
            self.end("left")

    def give_up(self) -> None:
        """The caller's patience is at its end."""
        if self._parser is not None:
            self.record.hung = True
            self.end("no end within the patience")

    # -- llhttp

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        record = self.record
        match name.lower():
            case b"content-type":
                self._kind = value.partition(b";")[0].strip().lower()
            case b"retry-after":
                record.retry_after = value.isdigit()
            case b"x-trilemma-attempts":
                record.attempts = int(value)
            case b"x-trilemma-overhead-ms":
                record.overhead_ms = float(value)
            case b"x-trilemma-model":
                record.model = value.decode()

    def on_headers_complete(self) -> None:
        """The head of the answer."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= 200:
            self.record.status = status
            self.record.head = self._clock()
            if status == 200 and self._kind == b"text/event-stream":
                self.record.sse = True
                self._events = EventSplitter(_LONGEST_EVENT)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._events is not None:
            self._note(self._events.feed(data))
        elif self.record.size <= _KEPT:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """The end, as the framing has it."""
        if self.record.status and self._parser is not None:
            self.record.whole = True
            self.keep = self._parser.should_keep_alive()
            self.end()

    # -- what it says

    def _note(self, events: list[bytes]) -> None:
        record = self.record
        count = 0
        for event in events:
            data = data_of(event)
            if data is None:
                continue
            if record.errors:
                record.stray += 1
            if data == DONE:
                record.done = record.valid = True
            elif b'"error"' in data[:64] and (code := _error_code(data)) is not None:
                record.errors += 1
                record.code = code
            else:
                count += 1
                if b'"usage":{' in data:
                    record.uncached = _uncached(_object(data))
        if count:
            self._stamp(count)

    def _stamp(self, count: int) -> None:
        record, now, gaps = self.record, self._clock(), self._gaps
        if record.last is None:
            record.first = now
        else:
            gap = now - record.last
            record.longest_gap = max(record.longest_gap, gap)
            gaps.append(gap)
        gaps.extend([0.0] * (count - 1))
        record.last = now
        record.events += count
        if self._leave_after is not None and record.events >= self._leave_after:
            self.leave()

    def _read_body(self) -> None:
        """A whole answer: whether it is one, or which error."""
        record = self.record
        if record.status == 0 or record.left or record.hung or not record.whole:
            return
        body = b"".join(self._body)
        self._body.clear()
        if record.status < 400:
            answer = _object(body)
            record.valid = record.size > _KEPT or "choices" in answer
            record.uncached = _uncached(answer)
        else:
            record.code = _error_code(body)


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _uncached(answer: dict[str, Any]) -> int | None:
    """Prompt tokens that were computed; None when the usage does not tell."""
    usage = answer.get("usage")
    if not isinstance(usage, dict) or not isinstance(details := usage.get("prompt_tokens_details"), dict):
        return None
    prompt, cached = usage.get("prompt_tokens"), details.get("cached_tokens") or 0
    return prompt - cached if isinstance(prompt, int) and isinstance(cached, int) else None


def _error_code(data: bytes) -> str | None:
    """The code in OpenAI's error envelope ("" if it has none); None for anything else."""
    error = _object(data).get("error")
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return str(error.get("code") or "")
