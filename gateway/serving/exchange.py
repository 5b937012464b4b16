"""One upstream exchange: what it holds (a slot at a backend, a socket, a timer) is given back exactly once, on every path."""

from __future__ import annotations

import zlib

from gateway.pool.backend import Backend
from gateway.pool.transport import Broken, Upstream
from gateway.serving.patience import Patience
from gateway.wire.encoding import Inflater


class Exchange:
    """Takes a slot when made; `close` returns it and drops the socket, unless the body was read to its end."""

    __slots__ = ("_closed", "_ended", "_inflate", "backend", "idle_s", "patience", "upstream")

    def __init__(self, backend: Backend, patience: Patience) -> None:
        self.backend = backend
        self.patience = patience
        self.idle_s = backend.timeouts.idle_s
        self.upstream: Upstream | None = None
        self._inflate: Inflater | None = None
        self._ended = False
        self._closed = False
        backend.in_flight += 1

    def opened(self, upstream: Upstream, inflate: Inflater | None, idle_s: float | None) -> None:
        """The answer's head has come."""
        self.upstream = upstream
        self._inflate = inflate
        if idle_s is not None:
            self.idle_s = min(self.idle_s, idle_s)

    async def read(self) -> bytes:
        """The next decoded bytes; empty at the end. Raises TransportError, DeadlinePassed."""
        assert self.upstream is not None
        while not self._ended:
            with self.patience.within(self.idle_s):
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

    def close(self) -> None:
        """Gives back what is held. Safe to call again."""
        if self._closed:
            return
        self._closed = True
        self.backend.in_flight -= 1
        self.patience.close()
        if self.upstream is not None and not self._ended:
            self.upstream.close()
