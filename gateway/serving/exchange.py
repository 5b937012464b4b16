"""One upstream exchange: what it holds (a slot at a backend, a socket, a timer) is given back exactly once, on every path."""

from __future__ import annotations

import zlib

from gateway.pool.backend import Backend
from gateway.pool.breaker import Fault
from gateway.pool.transport import Broken, Upstream
from gateway.serving.patience import Patience
from gateway.wire.encoding import Inflater


class Exchange:
    """Takes a slot when made; `close` returns it and drops the socket, unless the body was read to its end.

    The backend's breaker hears how it went: `went_well`, `failed`, or neither (the caller left, or was at fault).
    """

    __slots__ = ("_closed", "_ended", "_inflate", "_ticket", "backend", "events_s", "idle_s", "patience", "upstream")

    def __init__(self, backend: Backend, patience: Patience) -> None:
        self.backend = backend
        self.patience = patience
        self.idle_s = backend.timeouts.idle_s
        # Comments are signs of life, but not for ever: an event must come as soon as the first one had to.
        self.events_s = max(backend.timeouts.first_byte_s, backend.timeouts.idle_s)
        self.upstream: Upstream | None = None
        self._inflate: Inflater | None = None
        self._ended = False
        self._closed = False
        self._ticket = backend.breaker.begin(early=True)  # whether it may be early was decided with the choice
        backend.in_flight += 1

    def opened(self, upstream: Upstream, inflate: Inflater | None, idle_s: float | None) -> None:
        """The answer's head has come."""
        self.upstream = upstream
        self._inflate = inflate
        if idle_s is not None:
            self.idle_s = min(self.idle_s, idle_s)

    async def read(self, within_s: float | None = None) -> bytes:
        """The next decoded bytes; empty at the end. within_s: instead of the bound on silence. Raises TransportError, DeadlinePassed."""
        assert self.upstream is not None
        while not self._ended:
            with self.patience.within(self.idle_s if within_s is None else within_s):
                data = await self.upstream.read_some()
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
        """The backend failed. retry_after_s: how long it asked to be left alone."""
        self.backend.breaker.faulted(self._ticket, fault, retry_after_s)

    def close(self) -> None:
        """Gives back what is held. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        self.backend.breaker.abandoned(self._ticket)
        self.backend.in_flight -= 1
        self.patience.close()
        if self.upstream is not None and not self._ended:
            self.upstream.close()
