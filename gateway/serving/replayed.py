"""A whole answer as the stream that the caller asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.serving.call import Answer, Push, Receipt
from gateway.serving.streams import SSE_HEADERS
from gateway.wire.errors import ApiError, Header, sse_event
from gateway.wire.replay import events

_SSE: Header = (b"content-type", b"text/event-stream; charset=utf-8")


class Replayed:
    """A stream (call.Stream) over events that are all at hand."""

    __slots__ = ("_events",)

    takes_comments = True

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._events: Iterator[bytes] | None = pieces

    async def next(self, push: Push | None = None) -> bytes:  # noqa: ARG002 (nothing to be handed on)
        """See Stream.next."""
        return b"" if self._events is None else next(self._events, b"")

    def cut(self, error: ApiError) -> bytes:
        """See Stream.cut."""
        left, self._events = self._events, None
        return b"" if left is None or next(left, None) is None else sse_event(error)

    def close(self) -> None:
        """See Stream.close."""
        self._events = None


def replayed(answer: Answer, receipt: Receipt, *, wants_usage: bool) -> Answer:
    """A chat completion as a stream; any other answer as it is."""
    if answer.status != 200:
        return answer
    body: Mapping[str, Any] = orjson.loads(answer.body)
    usage = body.get("usage") if wants_usage else None
    kept = [header for header in answer.headers if not header[0].startswith((b"x-trilemma-", b"x-ratelimit-")) and header[0] not in _OURS]
    return Answer(200, [_SSE, *SSE_HEADERS, *kept, *receipt.headers(stream=True)], stream=Replayed(events(body, usage)))


_OURS = frozenset((b"content-type", b"cache-control", b"x-accel-buffering", b"x-request-id"))
