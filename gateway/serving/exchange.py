"""One upstream exchange: what it holds (a slot at a backend, a socket, a timer) is given back exactly once, on every path."""

from __future__ import annotations

import time
import zlib

from gateway.config.schema import Timeouts
from gateway.pool.backend import Backend
from gateway.pool.breaker import Fault
from gateway.pool.transport import Broken, Tap, Upstream
from gateway.serving.call import UpstreamCall
from gateway.serving.patience import Patience
from gateway.wire.encoding import Inflater


class Exchange:
    """Takes a slot when made; `close` returns it and drops the socket, unless the body was read to its end.

    The backend's breaker hears how it went: `went_well`, `failed`, or neither (the caller left, or was at fault). `call` is its record.
    bears_s: the longest silence that the caller bears; None: whatever the limits allow.
    """

    __slots__ = ("_closed", "_ended", "_hurried", "_inflate", "_ticket", "backend", "call", "events_s", "idle_s", "patience", "upstream")

    def __init__(self, backend: Backend, call: UpstreamCall, limits: Timeouts, patience: Patience, bears_s: float | None = None) -> None:
        self.backend = backend
        self.call = call
        self.patience = patience
        self.idle_s = limits.idle_s if bears_s is None else min(limits.idle_s, bears_s)
        # Comments are signs of life, but not for ever: an event must come as soon as the first one had to.
        self.events_s = max(limits.first_byte_s, limits.idle_s)
        # Or callers in a hurry could take a good backend from all the others.
        self._hurried = bears_s is not None and bears_s < self.events_s
        self.upstream: Upstream | None = None
        self._inflate: Inflater | None = None
        self._ended = False
        self._closed = False
        self._ticket = backend.breaker.begin(early=True)  # whether it may be early was decided with the choice
        backend.in_flight += 1
        patience.begin_call(limits.total_s, self.idle_s)

    def opened(self, upstream: Upstream, inflate: Inflater | None) -> None:
        """The answer's head has come."""
        self.upstream = upstream
        self._inflate = inflate

    def whole(self) -> bytes | None:
        """What is left of the body, when all of it is here already and needs no decoding; None: it has to be read."""
        if self.upstream is None or self._inflate is not None:
            return None
        data = self.upstream.whole()
        if data is not None:
            self._ended = True
            self.upstream.release()
        return data

    async def read(self, within_s: float | None = None, tap: Tap | None = None) -> bytes:
        """The next decoded bytes; empty at the end. within_s: instead of the bound on silence. tap: see Upstream.read_some; it says
        `patience.again()` of what it takes. Raises TransportError, DeadlinePassed."""
        assert self.upstream is not None
        if self._inflate is not None:
            tap = None
        while not self._ended:
            with self.patience.within(self.idle_s if within_s is None else within_s):
                data = await self.upstream.read_some(tap)
            if not data:
                self._ended = True
                self.upstream.release()
            if self._inflate is None:
                return data
            try:
                data = self._inflate.feed(data) if data else self._inflate.close()
            except zlib.error:
                raise Broken("the compressed answer is damaged") from None
            if data:
                return data
        return b""

    def began_well(self) -> None:
        """The answer has begun. That decides a trial, for others wait for its verdict; any other call is judged at its end."""
        if self._ticket.until is not None:
            self.backend.breaker.succeeded(self._ticket)

    def went_well(self) -> None:
        """The backend does its work."""
        self.backend.breaker.succeeded(self._ticket)

    def failed(self, fault: Fault, retry_after_s: float | None = None) -> None:
        """The backend failed; but what took a caller too long that bears less than the limits allow is no fault.

        retry_after_s: how long it asked to be left alone.
        """
        if fault == "timeout" and self._hurried:
            return
        self.call.fault = fault
        self.backend.breaker.faulted(self._ticket, fault, retry_after_s)

    def close(self) -> None:
        """Gives back what is held. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        self.call.ended = time.perf_counter()
        if self.call.outcome is None:
            self.call.outcome = "cancelled"
        self.backend.breaker.abandoned(self._ticket)
        self.backend.in_flight -= 1
        self.patience.close()
        if self.upstream is not None and not self._ended:
            self.upstream.close()
