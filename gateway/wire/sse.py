"""Server-sent events (WHATWG HTML, section 9.2) as bytes: split at any boundary, relayed unchanged.

An event ends at an empty line; lines end with LF, CRLF or CR. Bytes are never decoded, so a character cut by a read boundary is safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"

# The end of an event: a line end, then an empty line. A CR before LF is half of a CRLF, hence the look-aheads.
_BOUNDARY = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE = re.compile(rb"\r\n|\n|\r")


class EventTooLarge(ValueError):
    """An event grew past the bound without ending."""


class EventSplitter:
    """Cuts a byte stream into whole events; what is incomplete waits (at most `limit` bytes)."""

    __slots__ = ("_limit", "_pending", "_scanned")

    def __init__(self, limit: int = 16 << 20) -> None:
        self._pending = bytearray()
        self._scanned = 0
        self._limit = limit

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, each with its terminator, concatenating to exactly what was fed."""
        pending = self._pending
        pending += data
        events: list[bytes] = []
        start = 0
        at = max(0, self._scanned - 3)
        while match := _BOUNDARY.search(pending, at):
            end = match.end()
            if end == len(pending) and pending[end - 1] == 0x0D:
                break  # perhaps half of CR LF: wait for the next byte
            events.append(bytes(pending[start:end]))
            start = at = end
        if start:
            del pending[:start]
        self._scanned = len(pending)
        if len(pending) > self._limit:
            raise EventTooLarge
        return events

    @property
    def empty(self) -> bool:
        """Whether nothing waits: the last byte ended an event."""
        return not self._pending

    def close(self) -> bytes:
        """Ends the stream: the rest, which `is_whole` only if its last line was ended by a lone CR."""
        rest = bytes(self._pending)
        self._pending.clear()
        self._scanned = 0
        return rest


def is_whole(rest: bytes) -> bool:
    """Whether what was left at the end of a stream is an event; half an event is never dispatched."""
    return _BOUNDARY.search(rest) is not None


def data_of(event: bytes) -> bytes | None:
    """The event's data (its `data` lines joined by LF), or None when it has none: a comment, a ping, a bare field."""
    if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]
    lines: list[bytes] = []
    for line in _LINE.split(event):
        if line == b"data":
            lines.append(b"")
        elif line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines) if lines else None


def events_data(stream: bytes) -> Iterator[bytes]:
    """Every event's data in a complete stream."""
    splitter = EventSplitter(limit=len(stream))
    for event in (*splitter.feed(stream.removeprefix(_BOM)), splitter.close()):
        data = data_of(event) if is_whole(event) else None
        if data is not None:
            yield data
