"""A relayed event stream: whole events go on unchanged, less the usage chunk that the client did not ask for.

Only whole events are passed, so that an error event can always follow; an event that arrives in one read costs a few scans and no copy.
"""

from __future__ import annotations

import re

from gateway.wire.sse import DONE, EventSplitter, data_of
from gateway.wire.usage import Usage, read_answer

_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')


class StreamRelay:
    """State of one stream.

    strip_usage: drop the usage-only chunk. needs_done: the format ends with `[DONE]` (chat and completions), so an end without it and
    without a finish reason is a truncation.
    """

    __slots__ = ("_final", "_last", "_needs_done", "_previous", "_splitter", "_strip", "done", "events", "failed", "usage")

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
        self._final: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """What may go to the client now. Raises `sse.EventTooLarge`."""
        if self._splitter is None and data.endswith(b"\n\n"):
            if b'"usage"' not in data and b'"error"' not in data:
                self.events += 1
                self._previous, self._last = self._last, data
                if data.endswith(b"[DONE]\n\n"):
                    self.done = True
                return data
            return b"".join([event for event in EventSplitter().feed(data) if self._passes(event)])
        if self._splitter is None:
            self._splitter = EventSplitter()
        events = self._splitter.feed(data)
        out = b"".join([event for event in events if self._passes(event)])
        if not self._splitter.pending:
            self._splitter = None
        return out

    def close(self) -> bytes:
        """The stream's bytes have ended cleanly: what was held back goes too, unless the stream was cut (see `truncated`)."""
        rest = self._splitter.close() if self._splitter is not None else b""
        self._splitter = None
        if rest and not self._passes(rest):
            return b""
        return b"" if self.truncated else rest

    @property
    def truncated(self) -> bool:
        """The stream ended, but the answer did not."""
        if self.done or not self._needs_done:
            return False
        return not (_FINISHED.search(self._last) or _FINISHED.search(self._previous))

    def _passes(self, event: bytes) -> bool:
        data = data_of(event)
        if data is None:
            return True
        self.events += 1
        if data == DONE:
            self.done = True
            return True
        self._previous, self._last = self._last, data
        if b'"usage"' not in data and b'"error"' not in data:
            return True
        answer = read_answer(data)
        if answer is None:
            return True
        self.failed = self.failed or answer.is_error
        if not answer.is_summary:
            self.usage = answer.usage or self.usage  # counts so far
            return True
        if answer.usage is None:
            return not self._strip
        # Some engines send one such event for each of `n` choices: the prompt is the same, the answers add up.
        before = self._final
        self._final = self.usage = (
            answer.usage
            if before is None
            else Usage(
                prompt=max(before.prompt, answer.usage.prompt),
                cached=max(before.cached, answer.usage.cached),
                completion=before.completion + answer.usage.completion,
            )
        )
        return not self._strip
