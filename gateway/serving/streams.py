"""Answers that go on as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pool.transport import Broken, TimedOut, TransportError
from gateway.serving.call import Receipt, StreamBroken
from gateway.serving.exchange import Exchange
from gateway.serving.patience import DeadlinePassed
from gateway.wire.errors import ApiError, Header, sse_event
from gateway.wire.sse import EventTooLarge
from gateway.wire.stream import StreamRelay

Settle = Callable[[Receipt], None]

# Nothing between the gateway and its caller is to hold events back.
SSE_HEADERS: Final[tuple[Header, ...]] = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


class EventStream:
    """A backend's event stream. A failure after the first byte is one error event and the end: no `[DONE]`, no invented finish reason."""

    __slots__ = ("_closed", "_ended", "_events", "_exchange", "_first", "_receipt", "_settle", "_told_at")

    def __init__(self, exchange: Exchange, events: StreamRelay, receipt: Receipt, settle: Settle) -> None:
        self._exchange = exchange
        self._events = events
        self._receipt = receipt
        self._settle = settle
        self._first = b""
        self._told_at = exchange.patience.now()
        self._ended = False
        self._closed = False

    async def begin(self, within_s: float) -> None:
        """Waits for the first bytes that can go to the caller; until then another replica may still serve. within_s: each wait.

        Raises TransportError, DeadlinePassed.
        """
        try:
            while data := await self._exchange.read(within_s):
                if first := self._events.feed(data):
                    self._first = first
                    return
        except EventTooLarge:
            raise Broken("an event without end") from None
        self._first = self._events.close()
        if self._events.truncated or not self._first:
            raise Broken("the stream ended before it began")

    async def next(self) -> bytes:
        """See Stream.next."""
        if first := self._first:
            self._first = b""
            return first
        if self._ended:
            return b""
        events = self._events
        read = self._exchange.read
        told = events.events
        try:
            while data := await read():
                out = events.feed(data)
                if events.events != told:
                    told = events.events
                    self._told_at = self._exchange.patience.now()
                elif self._exchange.patience.now() - self._told_at > self._exchange.events_s:
                    raise TimedOut("nothing but comments")
                if out:
                    return out
        except TransportError as error:
            self._exchange.failed("timeout" if isinstance(error, TimedOut) else "reset")
            return self._broken(_stream_error(error))
        except DeadlinePassed:
            return self._broken(ApiError(504, "gateway_deadline", "The request's deadline passed."), "gateway_error")
        except EventTooLarge:
            return self._broken(ApiError(502, "backend_bad_answer", "The backend sent an event without end."))
        self._ended = True
        rest = events.close()
        if events.truncated:
            self._exchange.failed("reset")
            return rest + self._broken(ApiError(502, "backend_stream_broken", "The backend ended the stream before the answer."))
        return rest

    def cut(self, error: ApiError) -> bytes:
        """See Stream.cut."""
        if self._ended:
            return b""
        first, self._first = self._first, b""
        return first + self._broken(error, "gateway_error")

    def close(self) -> None:
        """See Stream.close. A client that leaves after `[DONE]` was sent has had its answer."""
        if self._closed:
            return
        self._closed = True
        receipt = self._receipt
        receipt.usage = self._events.usage
        receipt.events = self._events.events
        if not self._ended and not self._events.done:
            receipt.outcome = "client_closed"
        elif self._events.failed and receipt.outcome == "ok":
            receipt.outcome = "backend_error"
        if receipt.outcome == "ok":
            self._exchange.went_well()
        self._exchange.close()
        self._settle(receipt)

    def _broken(self, error: ApiError, outcome: str = "backend_error") -> bytes:
        self._ended = True
        self._exchange.close()
        held = self._events.held()
        if self._events.done or self._events.failed:
            return held  # the caller has had the whole answer, or the backend's own word on why not
        self._receipt.outcome = "gateway_error" if outcome == "gateway_error" else "backend_error"
        return held + sse_event(error)


class RawStream:
    """Any other body that is too large, or too strange, to be held: passed on unread."""

    __slots__ = ("_closed", "_ended", "_exchange", "_first", "_receipt", "_settle")

    def __init__(self, first: bytes, exchange: Exchange, receipt: Receipt, settle: Settle) -> None:
        self._first = first
        self._exchange = exchange
        self._receipt = receipt
        self._settle = settle
        self._ended = False
        self._closed = False

    async def next(self) -> bytes:
        """See Stream.next."""
        if first := self._first:
            self._first = b""
            return first
        try:
            data = await self._exchange.read()
        except (TransportError, DeadlinePassed):
            self._ended = True
            self._receipt.outcome = "backend_error"
            raise StreamBroken from None
        self._ended = not data
        return data

    def cut(self, error: ApiError) -> bytes:  # noqa: ARG002 (there is no way to tell)
        """See Stream.cut."""
        if not self._ended:
            self._ended = True
            self._receipt.outcome = "gateway_error"
        return b""

    def close(self) -> None:
        """See Stream.close."""
        if self._closed:
            return
        self._closed = True
        if not self._ended:
            self._receipt.outcome = "client_closed"
        self._exchange.close()
        self._settle(self._receipt)


def _stream_error(error: TransportError) -> ApiError:
    if isinstance(error, TimedOut):
        return ApiError(504, "backend_timeout", "The backend fell silent.")
    return ApiError(502, "backend_stream_broken", "The connection to the backend broke.")
