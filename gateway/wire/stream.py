"""A relayed event stream: whole events go on unchanged, less the usage chunk that the client did not ask for.

Only whole events are passed, so that an error event can always follow; an event that arrives in one read costs a few scans and no copy.

Engines put what concerns the whole answer (vLLM its `system_fingerprint`, llama.cpp its `timings`) into their last chunk: the usage chunk
when usage is asked for, else the one with the finish reason. When the usage chunk is dropped, those members move back to where a client
that asked directly finds them; so the chunk with the finish reason waits for the event after it.
"""

from __future__ import annotations

import re

from gateway.wire.errors import ApiError
from gateway.wire.request import members
from gateway.wire.sse import DONE, EventSplitter, data_of, events_data, is_whole
from gateway.wire.usage import Usage, read_answer

_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
_OF_EVERY_CHUNK = frozenset(("id", "object", "created", "model", "choices", "usage"))


class StreamRelay:
    """State of one stream.

    strip_usage: drop the usage-only chunk. needs_done: the format ends with `[DONE]` (chat and completions), so an end without it and
    without a finish reason is a truncation. events: how many came with data; of a read that holds several, named ones (`event:`) may not
    count. usage: None until the backend told of the answer; begun: what it told when the answer began.
    """

    __slots__ = (
        "_final",
        "_held",
        "_last",
        "_needs_done",
        "_previous",
        "_splitter",
        "_strip",
        "begun",
        "done",
        "events",
        "failed",
        "usage",
    )

    def __init__(self, *, strip_usage: bool, needs_done: bool) -> None:
        self._splitter: EventSplitter | None = None
        self._strip = strip_usage
        self._needs_done = needs_done
        self._last = b""
        self._previous = b""
        self.done = False
        self.failed = False
        self.events = 0
        self.usage: Usage | None = None
        self.begun: Usage | None = None
        self._final: Usage | None = None
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may go to the client now. Raises `sse.EventTooLarge`."""
        if self.passes(data):
            return data
        splitter = self._splitter = self._splitter or EventSplitter()
        out = b"".join([self._let_go(event) for event in splitter.feed(data)])
        if splitter.empty:
            self._splitter = None
        return out

    def passes(self, data: bytes) -> bool:
        """Whether this goes to the client as it is, which it then has to; else it is for `feed`."""
        if (
            self._splitter is not None
            or not data.endswith(b"}\n\n")
            or not data.startswith(b"data:")
            or b'"usage"' in data
            or b'"error"' in data
            or (self._strip and (self._held or _FINISHED.search(data)))
        ):
            return False
        self.events += 1 + data.count(b"\n\ndata:")
        self._previous, self._last = self._last, data
        return True

    def close(self) -> bytes:
        """The stream's bytes have ended cleanly: what was held back goes too, unless the stream was cut (see `truncated`)."""
        rest = self._splitter.close() if self._splitter is not None else b""
        self._splitter = None
        held, self._held = self._held, b""
        if not rest:
            return held
        whole = is_whole(rest)
        seen = self._previous, self._last
        passes = self._goes_on(rest)
        if not whole:
            self._previous, self._last = seen  # no client dispatches half an event, so it finishes nothing
        return held + rest if passes and (whole or not self.truncated) else held

    def held(self) -> bytes:
        """What waits for the event after it, when none will come."""
        held, self._held = self._held, b""
        return held

    @property
    def truncated(self) -> bool:
        """The stream ended, but the answer did not, and the backend has not said why."""
        if self.done or self.failed or not self._needs_done:
            return False
        return not any(map(_FINISHED.search, list(events_data(self._previous + self._last))[-2:]))

    def _let_go(self, event: bytes) -> bytes:
        """What may go on now that this event has come."""
        if not self._goes_on(event):
            self._held = _completed(self._held, event)
            return b""
        held, self._held = self._held, b""
        if self._strip and _FINISHED.search(event):
            self._held = event
            return held
        return held + event if held else event

    def _goes_on(self, event: bytes) -> bool:
        data = data_of(event)
        if data is None:
            return True
        self.events += 1
        if data == DONE:
            self.done = True
            return True
        answer = read_answer(data) if b'"usage"' in data or b'"error"' in data else None
        if answer is None or not answer.is_summary:
            self._previous, self._last = self._last, event
        if answer is None:
            return True
        self.failed = self.failed or answer.is_error
        if not answer.is_summary:
            self.usage = answer.usage or self.usage  # counts so far
            self.begun = answer.begun or self.begun
            return True
        if answer.usage is None:
            return not self._strip
        # Some engines send one such event for each of `n` choices: the prompt is the same, the answers add up. Others told of the prompt
        # when the answer began, and now no more.
        before = self._final or self.begun
        self._final = self.usage = (
            answer.usage
            if before is None
            else Usage(
                prompt=max(before.prompt, answer.usage.prompt),
                cached=max(before.cached, answer.usage.cached),
                completion=answer.usage.completion + (0 if self._final is None else before.completion),
            )
        )
        return not self._strip


def _completed(event: bytes, summary: bytes) -> bytes:
    """The event with the members of the summary that concern the whole answer at its end, byte for byte."""
    end = event.rfind(b"}")
    line = max(event.rfind(b"\n", 0, end + 1), event.rfind(b"\r", 0, end + 1)) + 1
    if end < 0 or event[end + 1 :].strip(b"\r\n") or not event.startswith(b"data:", line):
        return event
    # What ended a line of the data can only be space between tokens.
    extra = (data_of(summary) or b"{}").replace(b"\n", b" ")
    try:
        found = members(extra)
    except (ValueError, ApiError):
        return event
    moved = [extra[m.start : m.end] for m in found if m.key not in _OF_EVERY_CHUNK and f'"{m.key}"'.encode() not in event]
    return event[:end] + b"".join([b"," + member for member in moved]) + event[end:]
