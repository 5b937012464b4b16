"""Answers that go on as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pool.transport import Broken, TimedOut, TransportError
from gateway.serving.call import Push, Receipt, StreamBroken, UpstreamCall, Words
from gateway.serving.exchange import Exchange
from gateway.serving.patience import DeadlinePassed
from gateway.wire.errors import ApiError, Header, sse_event
from gateway.wire.sse import EventTooLarge
from gateway.wire.stream import StreamRelay
from gateway.wire.usage import estimated

Settle = Callable[[Receipt], None]

# Nothing between the gateway and its caller is to hold events back.
SSE_HEADERS: Final[tuple[Header, ...]] = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
# Bytes that may come before the first event, for they wait here until it is known who answers.
_MOST_COMMENTS: Final = 1 << 20


class _Relayed:
    """A body on its way. Once it is taken (`own`), its end is the end of a request.

    What became of it stands in the record of the call: None until its end, `cancelled` when it ended early and not for a fault of the
    backend's.
    """

    __slots__ = ("_closed", "_ended", "_exchange", "_first", "_gateways", "_receipt", "_settle")

    takes_comments = False

    def __init__(self, exchange: Exchange, first: bytes = b"") -> None:
        self._exchange = exchange
        self._first = first
        self._ended = False
        self._closed = False
        self._gateways = False  # it was the gateway that ended it
        self._receipt: Receipt | None = None
        self._settle: Settle | None = None

    @property
    def call(self) -> UpstreamCall:
        """The record of the call that it answers."""
        return self._exchange.call

    def own(self, receipt: Receipt, settle: Settle) -> None:
        """It is this request's answer, and read by the current task from now on."""
        self._receipt = receipt
        self._settle = settle
        self._exchange.patience.adopt()

    def close(self) -> None:
        """See Stream.close."""
        if self._closed:
            return
        self._closed = True
        call = self._exchange.call
        if call.outcome == "ok":
            self._exchange.went_well()
        self._exchange.close()
        receipt = self._receipt
        if receipt is None or self._settle is None:
            return
        receipt.usage = call.usage
        if call.outcome != "cancelled":
            receipt.outcome = call.outcome
        else:
            receipt.outcome = "gateway_error" if self._gateways else "client_closed"
        self._settle(receipt)


class EventStream(_Relayed):
    """A backend's event stream. A failure after the first byte is one error event and the end: no `[DONE]`, no invented finish reason.

    prompt_bytes: what the engine was given to read, for a guess at its tokens if it never tells; None where events are no tokens.
    """

    __slots__ = ("_events", "_prompt_bytes", "_push", "_told_at", "_words")

    takes_comments = True

    def __init__(self, exchange: Exchange, events: StreamRelay, prompt_bytes: int | None) -> None:
        super().__init__(exchange)
        self._events = events
        self._prompt_bytes = prompt_bytes
        # Since when what follows the last event has been waited for, once a wait brought none; before, it is the caller who takes its time.
        self._told_at: float | None = None
        self._words: Words | None = None
        self._push: Push | None = None

    def own(self, receipt: Receipt, settle: Settle) -> None:
        """See _Relayed.own."""
        super().own(receipt, settle)
        self._words = receipt.words
        if self._words is not None:
            self._words.hear(self._first)

    async def begin(self, within_s: float) -> None:
        """Waits for the first event; until then another replica may still serve, whatever comments came. within_s: until then.

        Raises TransportError, DeadlinePassed.
        """
        patience, events = self._exchange.patience, self._events
        due = patience.now() + within_s
        try:
            while data := await self._exchange.read(max(0.0, due - patience.now())):
                self._first += events.feed(data)
                if events.events and self._first:
                    return
                if len(self._first) > _MOST_COMMENTS:
                    raise Broken("comments without end")
        except EventTooLarge:
            raise Broken("an event without end") from None
        self._first += events.close()
        if events.truncated or not events.events:
            raise Broken("the stream ended before it began")

    async def next(self, push: Push | None = None) -> bytes:
        """See Stream.next."""
        if first := self._first:
            self._first = b""
            return first
        if self._ended:
            return b""
        events = self._events
        read = self._exchange.read
        patience = self._exchange.patience
        self._push = push
        tap = None if push is None else self._tap
        try:
            while data := await read(None, tap):
                told = events.events
                out = events.feed(data)
                if self._words is not None:
                    self._words.hear(out)
                if events.events != told:
                    self._told_at = None
                else:
                    self._told_at = patience.since if self._told_at is None else self._told_at
                    if patience.now() - self._told_at > self._exchange.events_s:
                        raise TimedOut("nothing but comments")
                if out:
                    return out
        except TransportError as error:
            return self._failed(error)
        except DeadlinePassed:
            return self._stopped(ApiError(504, "gateway_deadline", "The request's deadline passed."))
        except EventTooLarge:
            return self._broken(ApiError(502, "backend_bad_answer", "The backend sent an event without end."))
        self._ended = True
        rest = events.close()
        if self._words is not None:
            self._words.hear(rest)
        if events.truncated:
            self._exchange.failed("reset")
            return rest + self._broken(ApiError(502, "backend_stream_broken", "The backend ended the stream before the answer."))
        return rest

    def _tap(self, data: bytes) -> bool:
        """Events that go on as they are, where they arrive: no task is woken for them."""
        push = self._push
        if push is None or not self._events.passes(data):
            return False
        self._told_at = None
        self._exchange.patience.again()
        if self._words is not None:
            self._words.hear(data)
        if not push(data):
            self._push = None
        return True

    def cut(self, error: ApiError) -> bytes:
        """See Stream.cut."""
        if self._ended:
            return b""
        first, self._first = self._first, b""
        return first + self._stopped(error)

    def close(self) -> None:
        """See Stream.close. A client that leaves after `[DONE]` was sent has had its answer."""
        call, events = self._exchange.call, self._events
        call.usage = events.usage
        tokens = events.events - events.done - events.failed
        if call.usage is None and tokens > 0 and self._prompt_bytes is not None:
            call.usage, call.estimated = estimated(self._prompt_bytes, tokens, events.begun), True
        if call.outcome is None and (self._ended or events.done):
            call.outcome = "backend_error" if events.failed else "ok"
        if self._receipt is not None:
            self._receipt.events = events.events
        super().close()

    def _failed(self, error: TransportError) -> bytes:
        if not isinstance(error, TimedOut):
            self._exchange.failed("reset")
            return self._broken(ApiError(502, "backend_stream_broken", "The connection to the backend broke."))
        if self._exchange.patience.call_is_over:  # a long answer is not a fault
            return self._broken(ApiError(504, "backend_timeout", "The answer took longer than a call may take."))
        self._exchange.failed("timeout")
        return self._broken(ApiError(504, "backend_timeout", "The backend fell silent."))

    def _broken(self, error: ApiError) -> bytes:
        """The last bytes of a stream that its backend did not finish."""
        if not self._told_all():
            self._exchange.call.outcome = "backend_error"
        return self._end(error)

    def _stopped(self, error: ApiError) -> bytes:
        """The last bytes of a stream that the gateway ends."""
        if not self._told_all():
            self._gateways = True
            self._exchange.call.outcome = "cancelled"
        return self._end(error)

    def _told_all(self) -> bool:
        """Whether the caller has had the whole answer, or the backend's own word on why not."""
        return self._events.done or self._events.failed

    def _end(self, error: ApiError) -> bytes:
        self._ended = True
        if self._exchange.call.outcome is None:
            self._exchange.call.outcome = "backend_error" if self._events.failed else "ok"
        self._exchange.close()
        held = self._events.held()
        return held if self._told_all() else held + sse_event(error)


class RawStream(_Relayed):
    """Any other body that is too large, or too strange, to be held: passed on unread."""

    __slots__ = ()

    async def next(self, push: Push | None = None) -> bytes:  # noqa: ARG002 (its pieces are large)
        """See Stream.next."""
        if first := self._first:
            self._first = b""
            return first
        try:
            data = await self._exchange.read()
        except (TransportError, DeadlinePassed) as error:
            self._ended = True
            self._gateways = isinstance(error, DeadlinePassed)
            self._exchange.call.outcome = "cancelled" if self._gateways else "backend_error"
            raise StreamBroken from None
        self._ended = not data
        if self._ended:
            self._exchange.call.outcome = "ok"
        return data

    def cut(self, error: ApiError) -> bytes | None:  # noqa: ARG002 (there is no way to tell)
        """See Stream.cut."""
        if self._ended:
            return b""
        self._ended = True
        self._gateways = True
        return None
